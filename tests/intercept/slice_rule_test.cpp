// Which time slice a client has, in virtual time, on a board in this process.
#include "intercept/slot/slice_rule.hpp"

#include "shm/outside_word.hpp"
#include "shm/slice.hpp"
#include "shm/slice_answer.hpp"
#include "tests/support/board_test.hpp"

namespace sluice::intercept::test {
namespace {

using shm::SliceState;
using sluice::test::kMs;
using Slice = SliceRule::Slice;

constexpr int kTraining = 0;
constexpr int kServer = 1;
constexpr int kBatch = 2;
constexpr std::uint64_t kTickMs = 20;
constexpr Slice kShort{SliceRule::kShortUs, SliceState::kShort};

class TimeSliceRule : public sluice::test::BoardTest {
 protected:
  void SetUp() override {
    add_client(kTraining, 0, "train");
    works(kTraining);
  }

  shm::Slot& add_server(std::uint32_t share) {
    shm::Slot& server = add_client(kServer, 5, "serve");
    server.gpu_share.store(share);
    works(kServer);
    return server;
  }
  void works(int client) { working_ |= shm::bit(client); }
  void answer(shm::SliceAnswer::Kind kind) {
    board_->slice_answers[0].store(shm::SliceAnswer{kind, 260}.pack());
  }
  void idles(int client) { working_ &= ~shm::bit(client); }

  /// What the client has after so long.
  Slice after(std::uint64_t ms, int client = kTraining) {
    for (std::uint64_t gone = 0; gone < ms; gone += kTickMs) {
      now_ += kTickMs * kMs;
      for (int i = 0; i < 8; ++i) {
        if ((working_ & shm::bit(i)) != 0) slot(i).busy_ns.store(now_);
      }
      slice_ = rule_.tick(*board_, client, now_);
    }
    return slice_;
  }

  SliceRule rule_;
  Slice slice_;
  std::uint64_t now_ = sluice::test::kNow;
  std::uint64_t working_ = 0;
};

TEST_F(TimeSliceRule, WithoutAnotherPriorityItIsTheDrivers) {
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kDriver}));
  add_client(kBatch, 0, "batch");
  works(kBatch);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kDriver}));
}

TEST_F(TimeSliceRule, NextToAServerThatKeepsTheGpuBusyItIsShort) {
  add_server(900);
  EXPECT_EQ(after(480).us, 0U) << "a setting costs time, so it must last";
  EXPECT_EQ(after(100), kShort);
  board_->slots[kServer].info.store(0);
  EXPECT_EQ(after(20), (Slice{0, SliceState::kDriver})) << "at once";
}

TEST_F(TimeSliceRule, ThoseOfAnotherDeviceAndTheDeadDoNotCount) {
  add_server(900);
  slot(kServer).info.store(shm::SlotInfo{shm::SlotState::kLive, 5, 1, 1}.pack());
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kDriver}));
  set_state(kServer, shm::SlotState::kDead, 5);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kDriver}));
  set_state(kServer, shm::SlotState::kLive, 5);
  EXPECT_EQ(after(2000), kShort);
}

// Prevents: a window in which the program above keeps the GPU, so that nobody gets what it costs.
TEST_F(TimeSliceRule, InWindowsThoseBelowHaveTheGpu) {
  shm::Slot& server = add_server(900);
  server.steps.state.store(static_cast<std::uint32_t>(shm::StepState::kWindows));
  constexpr Slice kIn{SliceRule::kInWindowUs, SliceState::kWindows};
  constexpr Slice kBetween{SliceRule::kBetweenWindowsUs, SliceState::kWindows};
  EXPECT_EQ(after(600), kIn);
  add_client(kBatch, 0, "batch");
  works(kBatch);
  EXPECT_EQ(after(600), kIn) << "also for several";
  rule_ = SliceRule{};
  EXPECT_EQ(after(600, kServer), kBetween);
  board_->devices[0].outside.store(1);
  EXPECT_EQ(after(40, kServer), (Slice{0, SliceState::kOutside})) << "it would be a small part";
  board_->devices[0].outside.store(0);
  add_client(3, 5, "serve too");
  EXPECT_EQ(after(600, kServer), kBetween) << "an equal that does nothing is nobody";
  works(3);
  EXPECT_EQ(after(600, kServer).us, 0U) << "next to an equal, too";
  board_->slots[3].info.store(0);
  idles(3);
  for (const auto state :
       {shm::StepState::kNoWindow, shm::StepState::kTriesOpen, shm::StepState::kOpen}) {
    server.steps.state.store(static_cast<std::uint32_t>(state));
    EXPECT_NE(after(600, kServer), kBetween);
  }
}

// Prevents: each launch of a host-bound job waits for a slice of the kernel that is left below.
TEST_F(TimeSliceRule, NextToAServerWithASlowHostItIsTheDrivers) {
  shm::Slot& server = add_server(300);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kHostBound}));
  server.gpu_share.store(SliceRule::kBusyShare - 1);
  EXPECT_EQ(after(2000).us, 0U);
  server.gpu_share.store(SliceRule::kBusyShare);
  EXPECT_EQ(after(2000), kShort);
  server.gpu_share.store(SliceRule::kIdleShare);
  EXPECT_EQ(after(2000), kShort) << "the share is an estimate, and noise sets nothing";
  server.gpu_share.store(SliceRule::kIdleShare - 1);
  EXPECT_EQ(after(20), (Slice{0, SliceState::kHostBound}));
}

TEST_F(TimeSliceRule, OneServerWithASlowHostOfTwoSuffices) {
  add_server(900);
  add_client(4, 5, "other").gpu_share.store(200);
  works(4);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kHostBound}));
  idles(4);
  EXPECT_EQ(after(3000), kShort);
}

// Prevents: a watchdog of high priority with an empty kernel now and then switches short slices off
// for the server that uses the GPU, or makes the server one of several below it.
TEST_F(TimeSliceRule, WhereAServerUsesTheGpuOneThatDoesNotIsNotAsked) {
  add_server(900);
  for (const int priority : {5, 9}) {
    shm::Slot& other = add_client(4, priority, "watchdog");
    other.gpu_share.store(50);
    for (int i = 0; i < 200; ++i) {
      other.job_since_ns.store(now_);
      EXPECT_TRUE(after(20) == kShort || i < 30) << i;
    }
    idles(kServer);
    for (int i = 0; i < 200; ++i) {
      other.job_since_ns.store(now_);
      after(20);
    }
    EXPECT_EQ(slice_, (Slice{0, SliceState::kHostBound})) << "it is the only one";
    works(kServer);
    rule_ = SliceRule{};
  }
}

TEST_F(TimeSliceRule, NextToAServerOfWhichNothingIsKnownItIsTheDrivers) {
  add_server(0);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kLearning}));
  idles(kServer);
  after(1000);
  slot(kServer).gpu_share.store(900);
  EXPECT_EQ(after(3000), (Slice{0, SliceState::kLearning})) << "it does not run now";
  works(kServer);
  EXPECT_EQ(after(1000), kShort);
  idles(kServer);
  EXPECT_EQ(after(60'000), kShort) << "a server pauses, and its next job waits for little";
}

// Prevents: two busy programs with short slices get 7 and 8 % of the GPU.
TEST_F(TimeSliceRule, OfTwoBusyProgramsBelowNoneHasShortSlices) {
  add_server(900);
  add_client(kBatch, 0, "batch");
  EXPECT_EQ(after(2000), kShort) << "the other one is idle";
  works(kBatch);
  EXPECT_EQ(after(40), (Slice{0, SliceState::kSeveral})) << "at once";
  idles(kBatch);
  EXPECT_EQ(after(900).us, 0U);
  EXPECT_EQ(after(1000), kShort);
}

TEST_F(TimeSliceRule, OfThoseThatTakeTurnsOneIsBusy) {
  add_server(900);
  slot(kTraining).turn.takes.store(1);
  add_client(kBatch, 0, "batch").turn.takes.store(1);
  works(kBatch);
  EXPECT_EQ(after(2000), kShort);
  set_state(kBatch, shm::SlotState::kLive, 1);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kSeveral})) << "its turns are among others";
}

// Prevents: a program gets 5 % of the GPU next to a busy one that nobody knows.
TEST_F(TimeSliceRule, NextToProgramsOutsideItIsTheDrivers) {
  add_server(900);
  EXPECT_EQ(after(2000), kShort);
  board_->devices[1].outside.store(1);
  EXPECT_EQ(after(2000), kShort);
  board_->devices[0].outside.store(1);
  EXPECT_EQ(after(20), (Slice{0, SliceState::kOutside})) << "at once";
  board_->devices[0].outside.store(0);
  EXPECT_EQ(after(2000), kShort);
}

TEST_F(TimeSliceRule, AProgramBetweenCountsAsBelow) {
  add_server(900);
  add_client(kBatch, 2, "between");
  works(kBatch);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kSeveral}));
  idles(kTraining);
  EXPECT_EQ(after(3000, kBatch), kShort);
}

TEST_F(TimeSliceRule, TheUserDecides) {
  add_server(100);
  add_client(kBatch, 0, "batch");
  works(kBatch);
  slot(kTraining).requested_slice.store(250);
  EXPECT_EQ(after(2000), (Slice{250, SliceState::kShort}));
  slot(kTraining).requested_slice.store(shm::kSliceOff);
  EXPECT_EQ(after(20), (Slice{0, SliceState::kOff}));
  slot(kTraining).requested_slice.store(shm::kDriversSliceUs);
  EXPECT_EQ(after(2000), (Slice{shm::kDriversSliceUs, SliceState::kShort}));
  slot(kTraining).requested_slice.store(250);
  board_->slots[kServer].info.store(0);
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kDriver})) << "nobody waits";
}

// Prevents: best effort asks for 100 ms, and a critical job waits for it.
TEST_F(TimeSliceRule, ALongSliceIsAskedForInVainUnlessTheSiteAllowsIt) {
  add_server(900);
  slot(kTraining).requested_slice.store(100'000);
  EXPECT_EQ(after(2000), kShort);
  slot(kTraining).slice_ceiling.store(30'000);
  EXPECT_EQ(after(2000), (Slice{30'000, SliceState::kShort}));
  slot(kTraining).slice_ceiling.store(0);
  EXPECT_EQ(after(20).us, 0U) << "at once";
  EXPECT_EQ(after(2000), kShort);
}

// Prevents: a comparison with policy none for "without Sluice" in which slices are short.
TEST_F(TimeSliceRule, UnderPolicyNoneItIsTheDriversUnlessTheUserAsks) {
  add_server(900);
  slot(kTraining).policy.store(shm::Policy{shm::PolicyKind::kNone}.pack());
  EXPECT_EQ(after(2000), (Slice{0, SliceState::kOff}));
  slot(kTraining).requested_slice.store(100);
  EXPECT_EQ(after(2000), kShort);
}

// Prevents: switches that cost much on a GPU whose driver accepts slices and ignores them.
TEST_F(TimeSliceRule, OnAGpuThatDoesNotObeyItIsTheDrivers) {
  add_server(900);
  EXPECT_EQ(after(2000), kShort);
  answer(shm::SliceAnswer::Kind::kNotObeyed);
  EXPECT_EQ(after(20), (Slice{0, SliceState::kNotObeyed}));
  slot(kTraining).requested_slice.store(100);
  EXPECT_EQ(after(2000), kShort) << "the user decides";
  slot(kTraining).requested_slice.store(shm::kSliceAuto);
  answer(shm::SliceAnswer::Kind::kObeyed);
  EXPECT_EQ(after(2000), kShort);
}

class TimeSliceOfAServer : public TimeSliceRule {
 protected:
  void SetUp() override {
    TimeSliceRule::SetUp();
    add_server(900);
    jobs(20, 5 * kMs);
  }
  void jobs(std::uint64_t ended, std::uint64_t gpu_ns) {
    slot(kServer).job_times.ended.store(ended);
    slot(kServer).gpu_ns.store(ended * gpu_ns);
    slot(kServer).job_times.total_ns.store(ended * gpu_ns * 2);
  }
  Slice servers(std::uint64_t ms = 1000) { return after(ms, kServer); }
};

TEST_F(TimeSliceOfAServer, FitsTheGpuTimeOfItsJobs) {
  EXPECT_EQ(servers(), (Slice{8192, SliceState::kLong}));
  jobs(20, 1 * kMs);
  EXPECT_EQ(servers(), (Slice{0, SliceState::kDriver})) << "fits already";
  jobs(20, 900 * kMs);
  EXPECT_EQ(servers(), (Slice{SliceRule::kMostUs, SliceState::kLong}));
  jobs(19, 5 * kMs);
  EXPECT_EQ(servers(), (Slice{0, SliceState::kDriver})) << "too few";
}

// Prevents: those below an LLM server get 2 % of the GPU, because it keeps 100 ms for a job that
// has no end.
TEST_F(TimeSliceOfAServer, IsTheDriversWhereAJobHasNoEnd) {
  slot(kServer).gpu_ns.fetch_add(60'000 * kMs);
  EXPECT_EQ(servers(), (Slice{16'384, SliceState::kLong})) << "no more than a job takes in all";
  for (const auto state : {shm::StepState::kLearning, shm::StepState::kNoWindow,
                           shm::StepState::kTriesOpen, shm::StepState::kOpen}) {
    slot(kServer).steps.state.store(static_cast<std::uint32_t>(state));
    EXPECT_EQ(servers(), (Slice{0, SliceState::kDriver}));
  }
}

TEST_F(TimeSliceOfAServer, IsTheDriversOnAGpuThatDoesNotObey) {
  answer(shm::SliceAnswer::Kind::kNotObeyed);
  EXPECT_EQ(servers(), (Slice{0, SliceState::kNotObeyed}));
  jobs(20, 1 * kMs);
  EXPECT_EQ(servers(), (Slice{0, SliceState::kDriver})) << "it needs no other";
}

TEST_F(TimeSliceOfAServer, IsTheDriversForEqualsAndTargetsAndWithNobodyBelow) {
  add_client(4, 5, "equal");
  EXPECT_EQ(servers().state, SliceState::kLong) << "an equal that does nothing";
  slot(4).job_since_ns.store(now_);
  EXPECT_EQ(servers(kTickMs), (Slice{0, SliceState::kDriver})) << "an equal would wait for it";
  slot(4).info.store(0);
  slot(kServer).target.store(1);
  EXPECT_EQ(servers(), (Slice{0, SliceState::kDriver})) << "its gates may be open for a while";
  slot(kServer).target.store(0);
  EXPECT_EQ(servers().state, SliceState::kLong);
  idles(kTraining);
  EXPECT_EQ(servers(2000), (Slice{0, SliceState::kDriver})) << "nobody below uses the GPU";
}

// Prevents: a program that Sluice does not hold waits 100 ms for each slice of the highest client.
TEST_F(TimeSliceOfAServer, IsTheDriversWhereSomebodyWhomItDoesNotHoldWouldPay) {
  EXPECT_EQ(servers().state, SliceState::kLong);
  board_->devices[0].outside.store(shm::OutsideWord{0, 1}.pack());
  EXPECT_EQ(servers(kTickMs).us, 0U) << "a little is enough";
  board_->devices[0].outside.store(0);
  EXPECT_EQ(servers().state, SliceState::kLong);
  slot(kTraining).policy.store(shm::Policy{shm::PolicyKind::kNone}.pack());
  EXPECT_EQ(servers(kTickMs).us, 0U) << "a closed gate does not hold it";
  slot(kTraining).policy.store(0x1'0000'0000);
}

TEST_F(TimeSliceOfAServer, IsInTimeOfTheDevice) {
  rule_ = SliceRule(10);
  jobs(20, 50 * kMs);
  EXPECT_EQ(servers(), (Slice{8192, SliceState::kLong}));
}

TEST(GpuShareOfJobs, IsThatOfTheLastJobs) {
  GpuShare share;
  EXPECT_EQ(share.tick(1 * kMs, 7, 100 * kMs, 0), 0U) << "too few jobs";
  EXPECT_EQ(share.tick(1 * kMs, 8, 19 * kMs, 0), 0U) << "too short";
  EXPECT_EQ(share.tick(1 * kMs, 8, 100 * kMs, 0), 0U) << "the first ones load code";
  EXPECT_EQ(share.tick(81 * kMs, 16, 200 * kMs, 0), 800U);
  EXPECT_EQ(share.tick(81 * kMs, 20, 300 * kMs, 0), 800U) << "too few jobs";
  EXPECT_EQ(share.tick(121 * kMs, 30, 300 * kMs, 0), 700U) << "a quarter of the news";
  EXPECT_EQ(share.tick(121 * kMs, 40, 400 * kMs, 0), 700U) << "no launch was drawn";
}

// Prevents: a program with two steps in flight, whose job never ends, is never known.
TEST(GpuShareOfJobs, IsKnownOfAJobThatDoesNotEnd) {
  GpuShare share;
  EXPECT_EQ(share.tick(400 * kMs, 0, 100 * kMs, 350 * kMs), 0U) << "too short";
  EXPECT_EQ(share.tick(450 * kMs, 0, 110 * kMs, 400 * kMs), 0U) << "the first one loads code";
  EXPECT_EQ(share.tick(900 * kMs, 0, 210 * kMs, 800 * kMs), 800U);
}

// Seen to fail with the share of the host's time alone.
TEST(GpuShareOfJobs, IsAllWhereTheHostIsFaster) {
  GpuShare share;
  share.tick(20 * kMs, 8, 0, 0);
  EXPECT_EQ(share.tick(39 * kMs, 16, 1 * kMs, 0), 0U) << "too short";
  EXPECT_EQ(share.tick(60 * kMs, 16, 4 * kMs, 0), 1000U);
}

// Prevents: one wait when the program loaded makes it bound by its host for ever.
TEST(GpuShareOfJobs, AProgramThatAsksAgainAndAgainIsNotJudgedByItsWaits) {
  GpuShare share;
  share.tick(20 * kMs, 8, 0, 5 * kMs);
  EXPECT_EQ(share.tick(100 * kMs, 16, 100 * kMs, 5 * kMs), 800U);
}

// On a GPU, the GPU time of an eager program with kernels of 3 us was 80 % of its host time.
// Seen to fail without the waits, and if the waits before the last jobs count.
TEST(GpuShareOfJobs, IsNoMoreThanThatOfTheWaits) {
  GpuShare share;
  share.tick(20 * kMs, 8, 0, 500 * kMs);
  EXPECT_EQ(share.tick(100 * kMs, 16, 90 * kMs, 510 * kMs), 100U);
  EXPECT_EQ(share.tick(200 * kMs, 24, 100 * kMs, 600 * kMs), (3 * 100 + 900 + 2) / 4U);
}

}  // namespace
}  // namespace sluice::intercept::test
