// Programs whose host is slower than the GPU: their work in flight keeps a job open, and gates may
// stay open in their steps. In virtual time.
#include "shm/policy_text.hpp"
#include "tests/intercept/step_ends.hpp"

namespace sluice::intercept::test {
namespace {

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
  steps_ = std::make_unique<Steps>(*client_);
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

}  // namespace
}  // namespace sluice::intercept::test
