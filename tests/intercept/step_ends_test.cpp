// Which wait ends a step of a program that is never idle, which kind of step that is, and when a
// window opens: in virtual time.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/steps.hpp"
#include "shm/policy_text.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

class StepEnds : public testing::Test {
 protected:
  struct Flight {
    CUevent event;
    std::uint64_t done_ns;
  };

  StepEnds() {
    add_below();
    begin_job();
  }
  void add_below() {
    shm::Slot& below = client_.board().slots[1];
    below.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
    below.policy.store(shm::kDefaultPolicy.pack());
    client_.board().used.store(3);
  }
  void begin_job() {
    steps_->job_begins(now_, launches_);
    g_process.last_graph.store(nullptr);
  }
  /// The program gives a step of `ms` to the GPU, and records an event behind it.
  void give(std::uint64_t kind, std::uint64_t launches, double ms) {
    client_.board().slots[1].busy_ns.store(now_);
    steps_->given(kind, now_);
    launches_ += launches;
    gpu_ns_ = std::max(gpu_ns_, now_) + static_cast<std::uint64_t>(ms * kMs);
    const auto event = reinterpret_cast<CUevent>((events_++ % 16 + 1) * 64);
    g_process.event_marks.note(event);
    flights_.push_back({event, gpu_ns_});
  }
  /// It waits for the oldest step that it has not waited for.
  Steps::End wait() {
    const Flight flight = flights_.front();
    flights_.pop_front();
    return wait_for(flight.event, flight.done_ns);
  }
  Steps::End wait_for(CUevent event, std::uint64_t done_ns) {
    const Waits::Wait wait{now_, 0, g_process.event_marks.take(event)};
    now_ = std::max(now_ + 2'000, done_ns);
    if (closes_ns_ != 0 && closes_ns_ <= now_) steps_->window_closed(std::exchange(closes_ns_, 0));
    const Steps::End end = steps_->wait_returned(wait, now_, launches_);
    const bool open = closes_ns_ != 0;
    if (end.close) {
      EXPECT_TRUE(open);
      steps_->window_closed(now_);
      closes_ns_ = 0;
    } else if (end.window_ns != 0) {
      closes_ns_ = now_ + end.window_ns;
      if (open) return end;
      ++windows_;
      steps_->window_opened(now_);
    }
    return end;
  }
  /// `steps` decode steps, two in flight.
  void decode(int steps, double ms = 20) {
    for (int i = 0; i < steps; ++i) {
      give(7, 30, ms);
      if (flights_.size() > 1) wait();
    }
  }
  [[nodiscard]] shm::StepState state() {
    return static_cast<shm::StepState>(client_->slot().steps.state.load());
  }

  OwnClient client_{5};
  std::unique_ptr<Steps> steps_ = std::make_unique<Steps>(*client_, true);
  std::deque<Flight> flights_;
  std::uint64_t now_ = 1000 * kMs;
  std::uint64_t gpu_ns_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t closes_ns_ = 0;
  std::uintptr_t events_ = 0;
  int windows_ = 0;
};

TEST_F(StepEnds, TheTimeBetweenTwoReturnsIsTheLatency) {
  decode(20);
  give(7, 30, 20);
  const Steps::End end = wait();
  EXPECT_TRUE(end.ended && end.counted);
  EXPECT_EQ(now_ - end.began_ns, 20 * kMs);
}

// A step that begins after the last one has ended took no longer than since its first launch.
TEST_F(StepEnds, ATimeWithoutWorkIsNoPartOfAStep) {
  for (int i = 0; i < 30; ++i) {
    now_ += 100 * kMs;
    give(7, 30, 20);
    const Steps::End end = wait();
    EXPECT_EQ(now_ - end.began_ns, 20 * kMs);
  }
}

// Prevents: with two steps in flight, a prefill's time counts as that of the decode step behind it.
TEST_F(StepEnds, TheEventSaysWhichStepHasEnded) {
  decode(40);
  give(7, 30, 20);
  const std::uint64_t usual = wait().kind;
  give(8, 900, 120);
  EXPECT_EQ(wait().kind, usual);
  give(7, 30, 20);
  const Steps::End prefill = wait();
  EXPECT_NE(prefill.kind, usual);
  EXPECT_EQ(now_ - prefill.began_ns, 120 * kMs);
  give(7, 30, 20);
  EXPECT_EQ(wait().kind, usual);
}

class InFlight : public StepEnds {
 protected:
  /// Whether the job would go on if the GPU were idle now, and launches had come until now.
  bool goes_on() {
    steps_->launched(now_);
    return steps_->in_flight(now_);
  }
};

// Prevents: the job of a server with two steps in flight ends whenever the GPU is faster than its
// host; or that of a program that does not wait for its work does not end.
TEST_F(InFlight, WorkWillBeWaitedFor) {
  EXPECT_FALSE(goes_on());
  decode(5);
  EXPECT_FALSE(goes_on()) << "it may be by chance";
  decode(1);
  EXPECT_TRUE(goes_on());
  EXPECT_TRUE(steps_->in_flight(now_ + kMs - 1));
  EXPECT_FALSE(steps_->in_flight(now_ + kMs)) << "it does something else";
  EXPECT_FALSE(steps_->in_flight(now_ - 1)) << "the clock was set back";
  begin_job();
  EXPECT_TRUE(goes_on()) << "a part of a step may be a job";
  wait();
  EXPECT_FALSE(goes_on()) << "it has waited for all";
  give(7, 30, 20);
  EXPECT_TRUE(goes_on()) << "of its next request";
  steps_->waited(g_process.event_marks.period());
  EXPECT_FALSE(goes_on()) << "a synchronise has waited for all";
}

TEST_F(InFlight, AProgramThatLeavesWorkBehindHasNone) {
  decode(20);
  now_ += kMs;
  steps_->job_ended(now_);
  begin_job();
  decode(3);
  EXPECT_FALSE(goes_on());
}

TEST_F(InFlight, AProgramThatWaitsForEachStepHasNone) {
  for (int i = 0; i < 30; ++i) {
    give(7, 30, 20);
    g_process.event_marks.end_period();  // a step of another device has ended
    wait();
    EXPECT_FALSE(goes_on());
  }
}

// Prevents: a job that goes on with closed gates, where none of its steps could have a window.
TEST_F(InFlight, CountsOnlyWhereStepsMayHaveWindows) {
  decode(20);
  ASSERT_TRUE(goes_on());
  steps_->set(*shm::parse_target("p99=50ms"));
  EXPECT_FALSE(goes_on());
  steps_->set(*shm::parse_target("step p99=50ms"));
  EXPECT_TRUE(goes_on());
  client_.board().slots[1].policy.store(shm::parse_policy("event:2")->pack());
  EXPECT_FALSE(goes_on());
  add_below();
  EXPECT_TRUE(goes_on());
  steps_ = std::make_unique<Steps>(*client_, false);
  begin_job();
  decode(20);
  EXPECT_FALSE(goes_on());
}

TEST_F(InFlight, StepsOfKindsThatAreNewEachTimeAreGivenUp) {
  for (std::uint64_t i = 0; i < Steps::kNeverKnown + 8; ++i) {
    give(100 + i, 30, 20);
    if (flights_.size() > 1) wait();
    EXPECT_TRUE(i < 8 || i > 100 || goes_on());
    if (i % 10 == 0) begin_job();
  }
  EXPECT_FALSE(goes_on());
}

TEST_F(StepEnds, AGraphNamesItsStep) {
  decode(20);
  const std::uint64_t eager = wait().kind;
  g_process.last_graph.store(reinterpret_cast<CUgraphExec>(std::uintptr_t{32}));
  give(7, 30, 20);
  const std::uint64_t graph = wait().kind;
  EXPECT_NE(graph, eager);
  give(7, 30, 20);
  EXPECT_EQ(wait().kind, eager) << "the graph was launched once";
  g_process.last_graph.store(reinterpret_cast<CUgraphExec>(std::uintptr_t{32}));
  give(9, 30, 20);
  EXPECT_EQ(wait().kind, graph) << "whatever comes first";
}

// Programs ask for an old event before they use a buffer again, and for several events of a step.
TEST_F(StepEnds, AWaitThatFindsNothingNewEndsNone) {
  decode(20);
  give(7, 30, 20);
  const auto also = reinterpret_cast<CUevent>(std::uintptr_t{5});
  g_process.event_marks.note(also);
  wait();
  wait();
  now_ += kMs;
  EXPECT_FALSE(wait_for(also, 0).ended);
  EXPECT_FALSE(wait_for(also, now_ + 5 * kMs).ended) << "it was taken";
  g_process.event_marks.note(also);
  EXPECT_FALSE(wait_for(reinterpret_cast<CUevent>(std::uintptr_t{6}), now_ + 5 * kMs).ended)
      << "of another process";
  now_ += kMs;
  give(7, 30, 20);
  EXPECT_TRUE(wait().ended);
  g_process.event_marks.note(also);
  now_ += 100'000;
  EXPECT_FALSE(wait_for(also, now_ + 50'000).ended) << "0.15 ms later";
}

TEST_F(StepEnds, AJobThatIsShortHasNoSteps) {
  for (int job = 0; job < 50; ++job) {
    decode(10);
    while (!flights_.empty()) wait();
    now_ += 50 * kMs;
    steps_->job_ended(now_);
    begin_job();
  }
  EXPECT_EQ(windows_, 0);
  EXPECT_EQ(client_->slot().steps.ended.load(), 0U);
  EXPECT_EQ(state(), shm::StepState::kNone);
}

// Prevents: a job that the user waits for as a whole loses the law of closing.md.
TEST_F(StepEnds, AJobThatIsYoungHasNone) {
  decode(50, 1.9);
  EXPECT_EQ(client_->slot().steps.ended.load(), 0U);
  decode(10, 1.9);
  EXPECT_GT(client_->slot().steps.ended.load(), 2U);
}

TEST_F(StepEnds, WindowsOpenWhereStepsPayForThem) {
  decode(600);
  EXPECT_GT(windows_, 300);
  EXPECT_EQ(state(), shm::StepState::kWindows);
  shm::StepTimes& shown = client_->slot().steps;
  EXPECT_NEAR(shown.kinds[0].p50_us.load(), 20'000, 10);
  EXPECT_GT(shown.kinds[0].share.load(), 900U);
  EXPECT_GE(shown.window_us.load(), 1000U);
  EXPECT_EQ(shown.ended.load(), 583U);
}

TEST_F(StepEnds, APrefillInFlightKeepsTheGatesClosed) {
  decode(200);
  int windows = 0;
  for (int i = 0; i < 100; ++i) {
    const int before = windows_;
    give(8, 900, 120);
    wait();
    EXPECT_EQ(windows_, before) << "the prefill is queued";
    give(7, 30, 20);
    wait();
    decode(4);
    windows += windows_ - before;
  }
  EXPECT_GT(windows, 100);
}

TEST_F(StepEnds, NothingOpensWithoutAnybodyBelow) {
  client_.board().used.store(1);
  decode(200);
  EXPECT_EQ(windows_, 0);
  EXPECT_EQ(state(), shm::StepState::kNoWindow);
  client_.board().used.store(3);
  decode(100);
  EXPECT_GT(windows_, 30);
}

TEST_F(StepEnds, NothingOpensWhereWindowsAreOff) {
  steps_ = std::make_unique<Steps>(*client_, false);
  decode(200);
  EXPECT_EQ(windows_, 0);
  EXPECT_GT(client_->slot().steps.ended.load(), 100U) << "steps are shown all the same";
}

/// Steps of a host that is slower than the GPU.
struct SlowHost : StepEnds {
  void decode(int steps) {
    for (int i = 0; i < steps; ++i) {
      give(7, 30, 1);
      now_ += 4 * kMs;
      if (flights_.size() < 2) continue;
      wait();
      open_steps_ += closes_ns_ != 0 ? 1 : 0;
    }
  }
  int open_steps_ = 0;
};

// Prevents: two steps are taken for one, because both were given before the first wait.
TEST_F(SlowHost, EachWaitEndsAStep) {
  decode(100);
  EXPECT_NEAR(client_->slot().steps.ended.load(), 74, 2) << "but those before the job had steps";
  give(7, 30, 1);
  give(7, 30, 1);
  now_ += 4 * kMs;
  const std::uint64_t before = client_->slot().steps.ended.load();
  wait();
  decode(20);
  EXPECT_EQ(client_->slot().steps.ended.load(), before + 21);
  EXPECT_EQ(client_->slot().steps.kinds[0].p50_us.load(), 4002U);
}

TEST_F(SlowHost, MayLeaveTheGatesOpen) {
  decode(200);
  EXPECT_EQ(state(), shm::StepState::kTriesOpen);
  decode(20'000);
  EXPECT_EQ(state(), shm::StepState::kOpen);
  open_steps_ = windows_ = 0;
  decode(1000);
  EXPECT_NEAR(open_steps_, 967, 10) << "of 32 blocks one is closed";
  EXPECT_LE(windows_, 6) << "between blocks with open gates they do not close";
}

TEST_F(SlowHost, OpenGatesCloseForAPrefill) {
  decode(20'000);
  ASSERT_EQ(state(), shm::StepState::kOpen);
  while (closes_ns_ == 0) decode(1);
  give(8, 900, 120);
  now_ += 4 * kMs;
  wait();
  EXPECT_EQ(closes_ns_, 0U) << "the prefill is queued";
}

TEST_F(SlowHost, OpenGatesCloseForATargetAndForNobody) {
  decode(20'000);
  ASSERT_EQ(state(), shm::StepState::kOpen);
  while (closes_ns_ == 0) decode(1);
  steps_->set(*shm::parse_target("step p99=20ms"));
  give(7, 30, 1);
  now_ += 4 * kMs;
  wait();
  EXPECT_EQ(closes_ns_, 0U) << "there is no trial with a target";
  steps_->set({});
  decode(20'000);
  ASSERT_EQ(state(), shm::StepState::kOpen);
  while (closes_ns_ == 0) decode(1);
  client_.board().used.store(1);
  decode(1);
  EXPECT_EQ(closes_ns_, 0U) << "nobody is below";
  decode(20);
  EXPECT_EQ(state(), shm::StepState::kNoWindow);
}

// Prevents: a server that has answered some requests before its load began is said to have no
// steps, and keeps the slice of a program with jobs.
TEST_F(StepEnds, JobsBeforeTheStepsAreForgotten) {
  for (int job = 0; job < 30; ++job) {
    decode(3);
    while (!flights_.empty()) wait();
    now_ += 50 * kMs;
    steps_->job_ended(now_);
    begin_job();
  }
  EXPECT_EQ(state(), shm::StepState::kNone);
  decode(18);
  EXPECT_EQ(state(), shm::StepState::kLearning) << "at once";
  decode(200);
  EXPECT_EQ(state(), shm::StepState::kWindows);
}

// Prevents: a target of jobs, which an endless job cannot keep, is missed even more.
TEST_F(StepEnds, ATargetOfJobsHasNoWindows) {
  steps_->set(*shm::parse_target("p99=50ms"));
  decode(200);
  EXPECT_EQ(windows_, 0);
  EXPECT_EQ(state(), shm::StepState::kJobs);
}

TEST_F(StepEnds, ATargetOfStepsIsCounted) {
  steps_->set(*shm::parse_target("step p99=30ms"));
  decode(300);
  shm::Slot& slot = client_->slot();
  EXPECT_GT(windows_, 100);
  EXPECT_EQ(slot.target_ns.load(), 30 * kMs);
  EXPECT_EQ(slot.target_state.load(), static_cast<std::uint32_t>(shm::TargetState::kKept));
  EXPECT_GT(slot.target_jobs.load(), 250U);
  EXPECT_EQ(slot.target_kept.load(), slot.target_jobs.load());
  decode(100, 40);
  EXPECT_LT(slot.target_kept.load(), slot.target_jobs.load() - 80);
}

// Prevents: times of centuries, or windows without a bound, after a clock that jumps.
TEST_F(StepEnds, AClockThatJumpsDoesNoHarm) {
  decode(100);
  now_ -= 900 * kMs;
  gpu_ns_ = now_;
  flights_.clear();
  decode(100);
  now_ += std::uint64_t{1} << 62U;
  flights_.clear();
  decode(200);
  launches_ = 0;
  decode(200);
  for (const auto& kind : client_->slot().steps.kinds) EXPECT_LE(kind.p50_us.load(), 21'000U);
  EXPECT_LE(client_->slot().steps.window_us.load(), 18'000U);
}

// Prevents: a hostile program fills the tables, or the usual kind is lost among its kinds.
TEST_F(StepEnds, NewGraphsWithoutEndHaveNoWindows) {
  for (std::uintptr_t i = 1; i < 5000; ++i) {
    g_process.last_graph.store(reinterpret_cast<CUgraphExec>(i * 16));
    give(7, i % 100, 20);
    if (flights_.size() > 1) wait();
  }
  EXPECT_EQ(windows_, 0);
  EXPECT_EQ(state(), shm::StepState::kLearning);
  decode(300);
  EXPECT_GT(windows_, 100);
}

// Prevents: a window that was open when the job ended counts for the next one.
TEST_F(StepEnds, AWindowEndsWithItsJob) {
  while (windows_ == 0) decode(1);
  flights_.clear();
  steps_->job_ended(now_);
  closes_ns_ = 0;
  begin_job();
  decode(17);
  give(7, 30, 20);
  const Steps::End first = wait();
  EXPECT_TRUE(first.counted);
  EXPECT_EQ(first.open_ns, 0U);
}

// A program becomes one that is idle between its jobs: status says so.
TEST_F(StepEnds, AProgramMayStopToHaveSteps) {
  decode(200);
  EXPECT_EQ(state(), shm::StepState::kWindows);
  for (int i = 0; i < 40; ++i) {
    steps_->job_ended(now_);
    begin_job();
    flights_.clear();
    decode(2);
  }
  EXPECT_EQ(state(), shm::StepState::kNone);
}

}  // namespace
}  // namespace sluice::intercept::test
