// Which wait ends a step of a program that is never idle, which kind of step that is, and when a
// window opens: in virtual time.
#include "tests/intercept/step_ends.hpp"

#include <gtest/gtest.h>

#include "shm/policy_text.hpp"

namespace sluice::intercept::test {
namespace {

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
  // But each was seen, so that they can be compared with those of the same program never idle.
  const auto seen = client_->slot().steps.last.recent(client_->slot().steps.seen);
  EXPECT_EQ(seen.ended, 500U);
  for (const std::uint64_t ns : seen.ns) EXPECT_NEAR(static_cast<double>(ns), 20.0 * kMs, kMs);
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
  steps_ = std::make_unique<Steps>(*client_);
  decode(200);
  EXPECT_EQ(windows_, 0);
  EXPECT_GT(client_->slot().steps.ended.load(), 100U) << "steps are shown all the same";
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

TEST_F(StepEnds, EachStepIsSeenAndCountedOnce) {
  decode(300);
  const shm::StepTimes& steps = client_->slot().steps;
  EXPECT_EQ(steps.seen.load(), 299U) << "one is in flight";
  EXPECT_EQ(steps.ended.load(), 299U - Steps::kFirst);
  EXPECT_NEAR(static_cast<double>(steps.total_ns.load()) / 1e6,
              20.0 * static_cast<double>(steps.ended.load()), 40);
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
