// What a client below does with its slack: which launches wait for it, and when they stop waiting.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;

class Slack : public Session {
 protected:
  /// S: a wait for slack, G: a wait for the gate, K: a launch.
  static std::string order() {
    std::string order;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == Id::cuLaunchKernel) order += 'K';
      if (call.id != Id::cuStreamWaitValue64_v2) continue;
      order += call.arguments[3] == CU_STREAM_WAIT_VALUE_GEQ ? 'S' : 'G';
    }
    return order;
  }
  /// The slack of each wait, ns.
  static std::vector<std::uint64_t> slacks() {
    std::vector<std::uint64_t> slacks;
    for (const fake::Call& call : fake::calls()) {
      const bool waits = call.id == Id::cuStreamWaitValue64_v2;
      if (waits && call.arguments[3] == CU_STREAM_WAIT_VALUE_GEQ)
        slacks.push_back(call.arguments[2]);
    }
    return slacks;
  }
};

// The gate is read last: it has closed when the slack becomes sufficient again.
TEST_F(Slack, LongLaunchesWaitForSlackThenForTheGate) {
  attach("device:200us");
  outrank();
  learn(1, 0.5F);
  learn(2, 0.01F);
  kernel(1);
  fake::clear();
  kernel(1);
  EXPECT_EQ(order(), "GK") << "nobody ever announced a job";
  slot().announced.store(1);
  fake::clear();
  kernel(1);
  EXPECT_EQ(order(), "SGK");
  EXPECT_EQ(slacks(), std::vector<std::uint64_t>{500'000});
  fake::clear();
  kernel(2);
  kernel(2);
  EXPECT_EQ(order(), "GKK") << "short launches look at the gate alone";
  fake::clear();
  kernel(9);
  EXPECT_EQ(order(), "SGK") << "and unknown ones wait";
}

// A launch of one spacing is within the time by which the gate closes early.
TEST_F(Slack, ALaunchOfOneSpacingLooksAtTheGateAlone) {
  attach("device:200us");
  outrank();
  learn(1, 0.2F);
  slot().announced.store(1);
  fake::clear();
  kernel(1);
  EXPECT_TRUE(slacks().empty());
  learn(2, 0.201F);
  fake::clear();
  kernel(2);
  EXPECT_EQ(slacks().size(), 1U);
}

// The announcing process may be killed before the job begins. Seen to fail without the look at
// slack_until_ns in Watcher::tend_slack().
TEST_F(Slack, ASlackThatIsOverIsOpened) {
  attach("device:200us");
  outrank();
  slot().slack_until_ns.store(base::monotonic_ns() + 50 * kMs);
  slot().slack_ns.store(5);
  EXPECT_TRUE(eventually([&] { return slot().slack_ns.load() == shm::kUnlimitedSlack; }));
  EXPECT_GE(base::monotonic_ns(), slot().slack_until_ns.load());
}

// The announcing process may be below this client by now, and then writes no slack any more. Seen
// to fail without the look at outranked() in Watcher::tend_slack().
TEST_F(Slack, ASlackThatNobodyMayWriteIsOpened) {
  attach("device:200us");
  slot().slack_until_ns.store(base::monotonic_ns() + 3'600'000 * kMs);
  slot().slack_ns.store(5);
  EXPECT_TRUE(eventually([&] { return slot().slack_ns.load() == shm::kUnlimitedSlack; }));
}

// Prevents: where one announced job follows the other, a launch that is longer than the slack
// between them waits indefinitely. Seen to fail without max_hold in Watcher::tend_slack().
TEST_F(Slack, WhatFindsNoSlackGoesOnAfterMaxHold) {
  attach("device:200us");
  outrank();
  board().max_hold_ns.store(200 * kMs);
  const std::uint64_t begin = base::monotonic_ns();
  EXPECT_TRUE(eventually([&] {
    slot().slack_until_ns.store(base::monotonic_ns() + 1000 * kMs);
    slot().slack_ns.store(5);
    std::this_thread::sleep_for(1ms);
    return slot().slack_ns.load() == shm::kUnlimitedSlack;
  }));
  EXPECT_GE(base::monotonic_ns() - begin, 150 * kMs);
}

// The process that closed the gate ahead of a job may be stopped before the job begins. Seen to
// fail, held until max_hold, without the look at early_hold_until_ns in
// Holders::enforce_max_hold().
TEST_F(Slack, AGateThatIsClosedForAJobThatDoesNotBeginOpens) {
  attach("device:200us");
  Critical& critical = outrank();
  shm::Slot& above = board().slots[static_cast<std::size_t>(critical.slot())];
  const std::uint64_t begin = base::monotonic_ns();
  above.early_hold_until_ns.store(begin + 2000 * kMs);
  critical.begin();
  EXPECT_NE(slot().gate.load(), 0U);
  EXPECT_TRUE(eventually([&] { return slot().gate.load() == 0; }));
  EXPECT_GE(base::monotonic_ns(), begin + 2000 * kMs);
  EXPECT_LT(base::monotonic_ns(), begin + 8000 * kMs);
  critical.end();
  above.early_hold_until_ns.store(0);
  critical.begin();
  EXPECT_NE(slot().gate.load(), 0U) << "for that job only";
  std::this_thread::sleep_for(200ms);
  EXPECT_NE(slot().gate.load(), 0U) << "a job that has begun";
}

// A job that is announced an hour ahead must not hold a launch of unknown duration until then. Nor
// may each new kind be held until max_hold next to a program that always has the next job
// announced.
TEST_F(Slack, UnknownLaunchesWaitForNearJobsOnly) {
  attach("device:200us");
  outrank().begin();  // nothing is learned
  kernel(1);
  slot().announced.store(1);
  fake::clear();
  kernel(2);
  EXPECT_EQ(order(), "SGK");
  ASSERT_EQ(slacks().size(), 1U);
  EXPECT_LE(slacks()[0], 5 * kMs);
}

}  // namespace
}  // namespace sluice::intercept::test
