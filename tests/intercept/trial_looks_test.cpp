// When the gates of a trial close, in virtual time: the looks at the launches of a job, its wait,
// and what the law learns from both.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "intercept/driver/process.hpp"
#include "intercept/hooks/launch.hpp"
#include "intercept/jobs/before_job.hpp"
#include "intercept/jobs/trials.hpp"
#include "shm/policy_text.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kNever = CloseLaw::kNever;
constexpr int kToTheEnd = 5000;  ///< Jobs of a search.

/// Those below a client of priority 5.
class ThoseBelow : public testing::Test {
 protected:
  shm::Slot& add(std::size_t index, const char* name, std::uint32_t generation = 1) {
    shm::Slot& slot = client_.board().slots.at(index);
    slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, generation}.pack());
    slot.policy.store(shm::kDefaultPolicy.pack());
    slot.busy_ns.store(1);  // it has used the GPU
    std::snprintf(slot.name.data(), slot.name.size(), "%s", name);
    client_.board().used.fetch_or(std::uint64_t{1} << index);
    return slot;
  }
  std::uint64_t id() { return lower_clients(*client_, 0).id; }

  OwnClient client_{5};
};

// Prevents: each start of a short program begins the trials anew.
TEST_F(ThoseBelow, AreKnownByTheirNamesAndUsers) {
  EXPECT_EQ(id(), 0U);
  shm::Slot& train = add(1, "train");
  const std::uint64_t alone = id();
  EXPECT_NE(alone, 0U);
  add(1, "train", 2);
  EXPECT_EQ(id(), alone) << "it was started again";
  train.uid.store(7);
  EXPECT_NE(id(), alone) << "of another user";
  train.uid.store(0);
  shm::Slot& batch = add(2, "batch");
  const std::uint64_t both = id();
  EXPECT_NE(both, alone);
  batch.policy.store(0);
  EXPECT_EQ(id(), alone) << "it heeds no gate";
  add(1, "batch");
  add(2, "train");
  EXPECT_EQ(id(), both) << "in other slots";
  for (const char* other : {"serve", "bert", "a", "b"}) {
    add(1, "train");
    add(2, other);
    const std::uint64_t here = id();
    add(1, other);
    add(2, "train");
    EXPECT_EQ(id(), here) << other;
  }
}

// Prevents: a slice of 20 ms, or what a reader says of itself, switches predictions off.
TEST_F(ThoseBelow, WithShortSlicesNeedNoPredictions) {
  shm::Slot& train = add(1, "train");
  EXPECT_NE(lead_if_wanted(*client_), 0U);
  train.slice_us.store(100);
  EXPECT_EQ(lead_if_wanted(*client_), 0U);
  train.reader.store(1);
  EXPECT_NE(lead_if_wanted(*client_), 0U);
  train.reader.store(0);
  train.slice_us.store(20'000);
  EXPECT_NE(lead_if_wanted(*client_), 0U);
  train.slice_us.store(100);
  add(2, "batch");
  EXPECT_NE(lead_if_wanted(*client_), 0U) << "one has the driver's";
}

class TrialLooks : public testing::Test {
 protected:
  TrialLooks() {
    trials_.give(shm::kDefaultGive);
    shm::Slot& below = client_.board().slots[1];
    below.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
    below.policy.store(shm::kDefaultPolicy.pack());
    client_.board().used.store(3);
  }

  /// A job of `launches` that the host makes in 4 to 6 ms. It waits for 50 us, or for 2 ms if its
  /// gates close after more than `harmless` launches. Returns the launches before the gates closed.
  std::uint64_t job(std::uint64_t launches, std::uint64_t harmless) {
    client_.board().slots[1].busy_ns.store(now_);
    const std::uint64_t host_ns = host_ns_(random_);
    const std::uint64_t begin = now_;
    const auto launched = [&] { return launches * (now_ - begin) / host_ns; };
    TargetLaw::Step step = trials_.begin(now_, 1);
    std::uint64_t closed = step.close ? now_ : 0;
    std::uint64_t closed_at = 0;
    while (closed == 0 && step.look_ns < begin + host_ns) {
      const std::uint64_t look_ns = step.look_ns;
      const bool first = now_ == begin;
      now_ = (now_ + look_ns) / 2;
      step = trials_.look(now_, launched());
      // A later look comes soon, and half of that may be enough.
      EXPECT_FALSE(first && step.close) << "a thread that looks too early";
      if (!step.close) {
        now_ = look_ns;
        step = trials_.look(now_, launched());
      }
      EXPECT_GT(step.look_ns, now_);
      ++looks_;
      if (!step.close) continue;
      closed = now_;
      closed_at = launched();
    }
    now_ = begin + host_ns;
    if (closed == 0) closed_at = launches;
    if (closed == 0 && trials_.closes_at_wait()) closed = now_;
    const std::uint64_t wait = now_;
    now_ += closed_at > harmless ? 2'000 * kUs : 50 * kUs;
    trials_.ended(now_, launches, closed, now_ - wait);
    EXPECT_FALSE(trials_.runs() || trials_.closes_at_wait());
    now_ += 1'000 * kUs;
    return closed_at;
  }

  OwnClient client_{5};
  Trials trials_{*client_};
  std::uint64_t now_ = 1'000'000 * kUs;
  int looks_ = 0;

 private:
  std::mt19937 random_{3};
  std::uniform_int_distribution<std::uint64_t> host_ns_{4'000 * kUs, 6'000 * kUs};
};

// Prevents: decode and prefill, which begin with the same kernel, are one kind of job.
TEST(KindOfWork, IsTheKernelWithItsGridOrTheGraph) {
  Work work;
  work.function = reinterpret_cast<CUfunction>(std::uintptr_t{7});
  work.grid = {1, 2, 3};
  const auto changed = [&work](auto change) {
    Work other = work;
    change(other);
    return kind_of(other) != kind_of(work);
  };
  EXPECT_NE(kind_of(work), 0U) << "that means: nothing is known";
  EXPECT_FALSE(changed([](Work& other) { other.shared_bytes = 5; }));
  EXPECT_TRUE(changed([](Work& other) { other.function = nullptr; }));
  EXPECT_TRUE(changed([](Work& other) { other.grid = {1, 2, 4}; }));
  EXPECT_TRUE(changed([](Work& other) { other.grid = {2, 1, 3}; }));
  EXPECT_TRUE(
      changed([](Work& other) { other.graph = reinterpret_cast<CUgraphExec>(std::uintptr_t{9}); }));
}

// Prevents: the published policies do not behave as published, or a program that heeds no gate
// shows that gates bring nothing.
TEST_F(TrialLooks, NothingIsTriedWithoutADevicePolicyBelow) {
  shm::Slot& below = client_.board().slots[1];
  for (const char* policy : {"none", "gate", "sync:4", "event:2"}) {
    below.policy.store(shm::parse_policy(policy)->pack());
    EXPECT_TRUE(trials_.begin(now_, 1).close) << policy;
    EXPECT_FALSE(trials_.runs()) << policy;
  }
  below.policy.store(shm::parse_policy("device:4")->pack());
  EXPECT_TRUE(trials_.begin(now_, 1).close) << "the first job";
  EXPECT_TRUE(trials_.runs());
}

// Prevents: a server whose requests begin to overlap is one job that began with open gates, and
// nothing ever closes them.
TEST_F(TrialLooks, GatesOfAJobThatDoesNotEndClose) {
  for (int i = 0; i < 300; ++i) job(1000, 1001);  // no launch is too late: tries never, then others
  TargetLaw::Step step{true, kNever};
  for (int i = 0; i < 20; ++i) {
    step = trials_.begin(now_, 1);
    if (!step.close) break;
    const std::uint64_t began = now_;
    now_ += 5'000 * kUs;
    trials_.ended(now_, 1000, began, 50 * kUs);
  }
  ASSERT_FALSE(step.close) << "not every job is a reference";
  EXPECT_FALSE(trials_.looks_in_time()) << "it is open, or closes when it waits";
  const std::uint64_t begin = now_;
  EXPECT_GE(step.look_ns, begin + CloseLaw::kShortestLatestNs);
  EXPECT_LE(step.look_ns, begin + 25'000 * kUs);
  EXPECT_FALSE(trials_.look(step.look_ns - 1, 5).close);
  EXPECT_TRUE(trials_.look(step.look_ns, 5).close);
}

// Prevents: status says what was true of neighbours that are gone.
TEST_F(TrialLooks, WithoutNeighboursNothingIsShown) {
  for (int i = 0; i < 300; ++i) job(1000, 0);
  shm::Slot& own = client_.board().slots[0];
  EXPECT_NE(own.close_state.load(), 0U);
  client_.board().used.store(1);
  EXPECT_TRUE(trials_.begin(now_, 1).close);
  EXPECT_FALSE(trials_.runs());
  EXPECT_EQ(own.close_state.load(), 0U);
}

// Prevents: jobs whose gates may close later are predicted, and then their gates close before them.
TEST_F(TrialLooks, OnlyJobsThatAreHarmedNeedGatesThatCloseEarly) {
  EXPECT_FALSE(trials_.need_early(now_)) << "nothing is known";
  for (int i = 0; i < 300; ++i) job(1000, 1001);
  EXPECT_FALSE(trials_.need_early(now_)) << "no launch is too late";
  for (int i = 0; i < 1000; ++i) job(1000, 0);
  EXPECT_TRUE(trials_.need_early(now_));
  for (int i = 0; i < 254; ++i) trials_.closed_before();
  EXPECT_TRUE(trials_.need_early(now_));
  trials_.closed_before();
  EXPECT_FALSE(trials_.need_early(now_)) << "the law hears of one predicted job in 256";
  job(1000, 0);
  EXPECT_TRUE(trials_.need_early(now_));
  client_.board().slots[1].name = {"another"};
  EXPECT_FALSE(trials_.need_early(now_)) << "nothing is known of the new neighbour";
  Trials off(*client_);
  EXPECT_TRUE(off.need_early(now_));
}

TEST_F(TrialLooks, TheGatesCloseAtTheLaunchThatTheLawNames) {
  for (int i = 0; i < kToTheEnd; ++i) job(1000, 600);
  int late = 0;
  looks_ = 0;
  for (int i = 0; i < 160; ++i) {
    const std::uint64_t closed_at = job(1000, 600);
    if (closed_at == 0) continue;
    ++late;
    EXPECT_NEAR(static_cast<double>(closed_at), 500, 15);
  }
  EXPECT_NEAR(late, 150, 1) << "one job in 16 is a reference";
  EXPECT_LE(looks_, 3 * late);
}

// A graph: its time stands for its launches.
TEST_F(TrialLooks, FewLaunchesCloseByTheTime) {
  for (int i = 0; i < kToTheEnd; ++i) job(5, 2);
  int late = 0;
  looks_ = 0;
  for (int i = 0; i < 160; ++i) late += job(5, 2) != 0 ? 1 : 0;
  EXPECT_GE(late, 100);
  EXPECT_LE(looks_, 150) << "one a job";
}

TEST_F(TrialLooks, TheWaitIsTheLatestMoment) {
  for (int i = 0; i < kToTheEnd; ++i) job(1000, 1000);
  int never = 0;
  for (int i = 0; i < 160; ++i) never += job(1000, 1000) == 1000 ? 1 : 0;
  EXPECT_NEAR(never, 150, 1);
  EXPECT_EQ(looks_, 0) << "never closing is harmless";
}

// Prevents: trials that cost, of which nobody has anything.
TEST_F(TrialLooks, WithNobodyBelowTheGatesCloseAtFirst) {
  client_.board().slots[1].info.store(0);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(job(1000, 1000), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
