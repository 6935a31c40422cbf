// What a client below does with the room that it is told of: which launches wait for it, and when
// they stop waiting.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;

class Room : public Session {
 protected:
  /// R: for room, G: for the gate, K: a launch.
  static std::string order() {
    std::string order;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == Id::cuLaunchKernel) order += 'K';
      if (call.id != Id::cuStreamWaitValue64_v2) continue;
      order += call.arguments[3] == CU_STREAM_WAIT_VALUE_GEQ ? 'R' : 'G';
    }
    return order;
  }
  /// How much room was waited for, ns.
  static std::vector<std::uint64_t> rooms() {
    std::vector<std::uint64_t> rooms;
    for (const fake::Call& call : fake::calls()) {
      const bool waits = call.id == Id::cuStreamWaitValue64_v2;
      if (waits && call.arguments[3] == CU_STREAM_WAIT_VALUE_GEQ)
        rooms.push_back(call.arguments[2]);
    }
    return rooms;
  }
};

// The gate is read last: it is closed when there is room again.
TEST_F(Room, LongLaunchesWaitForRoomThenForTheGate) {
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
  EXPECT_EQ(order(), "RGK");
  EXPECT_EQ(rooms(), std::vector<std::uint64_t>{500'000});
  fake::clear();
  kernel(2);
  kernel(2);
  EXPECT_EQ(order(), "GKK") << "short launches look at the gate alone";
  fake::clear();
  kernel(9);
  EXPECT_EQ(order(), "RGK") << "and unknown ones wait";
}

// Who announced may be killed before the job begins.
// Seen to fail without the look at slack_until_ns in Watcher::tick().
TEST_F(Room, ARoomThatIsVoidIsOpened) {
  attach("device:200us");
  outrank();
  slot().slack_until_ns.store(base::monotonic_ns() + 50 * kMs);
  slot().slack_ns.store(5);
  EXPECT_TRUE(eventually([&] { return slot().slack_ns.load() == shm::kUnlimitedSlack; }));
  EXPECT_GE(base::monotonic_ns(), slot().slack_until_ns.load());
}

// Who announced may be below us by now, and then tells us no more.
// Seen to fail without the look at outranked() in Watcher::tend_slack().
TEST_F(Room, ARoomThatNobodyMayTellIsOpened) {
  attach("device:200us");
  slot().slack_until_ns.store(base::monotonic_ns() + 3'600'000 * kMs);
  slot().slack_ns.store(5);
  EXPECT_TRUE(eventually([&] { return slot().slack_ns.load() == shm::kUnlimitedSlack; }));
}

// Prevents: where one announced job follows the other, a launch that is longer than they leave room
// for waits for ever. Seen to fail without max_hold in Watcher::tend_slack().
TEST_F(Room, WhatFindsNoRoomGoesOnAfterMaxHold) {
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

// Who closed the gate ahead of a job may be stopped before that begins. Seen to fail, held until
// max_hold, without the look at early_hold_until_ns in Watcher::enforce_max_hold().
TEST_F(Room, AGateThatIsClosedForAJobThatDoesNotBeginOpens) {
  attach("device:200us");
  Critical& critical = outrank();
  shm::Slot& above = board().slots[static_cast<std::size_t>(critical.slot())];
  const std::uint64_t begin = base::monotonic_ns();
  above.early_hold_until_ns.store(begin + 50 * kMs);
  critical.begin();
  EXPECT_NE(slot().gate.load(), 0U);
  EXPECT_TRUE(eventually([&] { return slot().gate.load() == 0; }));
  EXPECT_GE(base::monotonic_ns(), begin + 50 * kMs);
  EXPECT_LT(base::monotonic_ns(), begin + 5000 * kMs);
  critical.end();
  above.early_hold_until_ns.store(0);
  critical.begin();
  EXPECT_NE(slot().gate.load(), 0U) << "for that job only";
  std::this_thread::sleep_for(200ms);
  EXPECT_NE(slot().gate.load(), 0U) << "a job that has begun";
}

// A job that is announced an hour ahead must not hold what was never launched before until then.
// Nor, of each new kind, until max_hold beside a program that always has the next job announced.
TEST_F(Room, UnknownLaunchesWaitForNearJobsOnly) {
  attach("device:200us");
  outrank().begin();  // nothing is learned
  kernel(1);
  slot().announced.store(1);
  fake::clear();
  kernel(2);
  EXPECT_EQ(order(), "RGK");
  ASSERT_EQ(rooms().size(), 1U);
  EXPECT_LE(rooms()[0], 5 * kMs);
}

}  // namespace
}  // namespace sluice::intercept::test
