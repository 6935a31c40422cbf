// When launches are refused for an order, and what the program hears of it. Nothing is preloaded,
// so the test decides what comes between two steps.
#include "intercept/slot/orders.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "shm/memory.hpp"
#include "tests/intercept/own_client.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using shm::MemoryOrder;
using shm::Order;
using sluice::test::eventually;

constexpr std::uint64_t kMs = 1'000'000;

class OrdersOfABroker : public testing::Test {
 protected:
  explicit OrdersOfABroker(bool reader = false) : client_(0, "gate", reader) {
    shm::reset(board().slots[0].memory);
    shm::Slot& slot = board().slots[kBroker];
    slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 1, 0, 1}.pack());
    slot.alive.initialise();
    slot.alive.take();
    shm::reset(client_->slot().memory);
    static_cast<void>(orders().grant());  // the program knows of orders
  }
  ~OrdersOfABroker() override { kill_broker(); }

  shm::Board& board() { return client_.board(); }
  Orders& orders() { return client_->orders(); }
  std::uint64_t give(MemoryOrder kind) {
    return shm::give_order(board(), {kBroker, 1}, {0, 1}, kind);
  }
  void grant(std::uint64_t bytes) { shm::set_grant(board(), {kBroker, 1}, {0, 1}, bytes); }
  void kill_broker() {
    shm::RobustMutex& alive = board().slots[kBroker].alive;
    if (alive.held()) alive.release();
  }
  bool launches_look() { return (client_->slot().outranked.load() & shm::kOrdered) != 0; }

  static constexpr int kBroker = 7;
  OwnClient client_;
};

class OrdersToAReader : public OrdersOfABroker {
 protected:
  OrdersToAReader() : OrdersOfABroker(true) {}
};

// Prevents: a program that can only read the board is told again to obey what it has obeyed, until
// the node service has heard of it; or never, because its order is on the board only.
TEST_F(OrdersToAReader, WhatItHasObeyedIsOver) {
  const std::uint64_t order = give(MemoryOrder::kDrop);
  EXPECT_TRUE(orders().refuse());
  EXPECT_EQ(orders().pending(), order);
  orders().done(order);
  EXPECT_EQ(orders().pending(), 0U);
  EXPECT_FALSE(orders().refuse()) << "the board says kOrdered still";
  EXPECT_EQ(client_->slot().memory.done.load(), Order::unpack(order).epoch);
  EXPECT_EQ(board().slots[0].memory.done.load(), 0U) << "not its to write";
}

TEST_F(OrdersOfABroker, LaunchesAreRefusedUntilTheOrderIsObeyed) {
  EXPECT_FALSE(orders().refuse());
  const std::uint64_t order = give(MemoryOrder::kDrop);
  EXPECT_TRUE(orders().refuse());
  EXPECT_TRUE(orders().refuse());
  EXPECT_EQ(orders().pending(), order);
  orders().done(order);
  EXPECT_FALSE(orders().refuse());
  EXPECT_FALSE(launches_look()) << "each launch takes the slow path for good";
  EXPECT_EQ(orders().pending(), 0U);
}

// Prevents: a report that takes any wait of the program for the end of its queue.
TEST_F(OrdersOfABroker, WaitsCountWhileTheProgramObeys) {
  EXPECT_EQ(orders().begin_wait(), 0U);
  const std::uint64_t order = give(MemoryOrder::kDrop);
  EXPECT_EQ(orders().begin_wait(), 0U) << "it does not know of the order yet";
  ASSERT_TRUE(orders().refuse());
  const std::uint64_t began = orders().begin_wait();
  ASSERT_NE(began, 0U);
  orders().end_wait(began);
  EXPECT_EQ(client_->slot().memory.dropped_ns.load(), began);
  orders().done(order);
  EXPECT_EQ(orders().begin_wait(), 0U);
  EXPECT_GT(shm::obey_parts(client_->slot().memory).drop_ns, 0U);

  give(MemoryOrder::kShrink);
  EXPECT_EQ(orders().begin_wait(), 0U);
  EXPECT_NE(orders().pending(), 0U);
  EXPECT_NE(orders().begin_wait(), 0U) << "it obeys between two micro-batches";
}

TEST_F(OrdersOfABroker, NoLaunchIsRefusedToShrink) {
  const std::uint64_t order = give(MemoryOrder::kShrink);
  EXPECT_FALSE(orders().refuse());
  EXPECT_FALSE(launches_look());
  EXPECT_EQ(orders().pending(), order);
}

// Prevents: a program that does not know of orders gets errors from its launches, and ends.
TEST_F(OrdersOfABroker, AProgramThatDoesNotKnowOfOrdersIsNotRefused) {
  client_->slot().memory.obedient.store(0);
  const std::uint64_t order = give(MemoryOrder::kDrop);
  EXPECT_FALSE(orders().refuse());
  orders().tick();
  EXPECT_FALSE(launches_look());
  EXPECT_EQ(orders().pending(), order);
  EXPECT_TRUE(orders().refuse()) << "it knows now";
}

// Prevents: half of an optimizer step is applied.
TEST_F(OrdersOfABroker, AStepThatHasBegunEndsFirst) {
  orders().critical(true);
  EXPECT_EQ(client_->slot().memory.critical.load(), 1U);
  give(MemoryOrder::kDrop);
  EXPECT_FALSE(orders().refuse());
  orders().tick();
  EXPECT_TRUE(launches_look()) << "the order is forgotten";
  orders().critical(false);
  EXPECT_TRUE(orders().refuse());
}

// Prevents: a step applies the gradients of a micro-batch of which a launch was refused.
TEST_F(OrdersOfABroker, NoStepBeginsOnADroppedMicroBatch) {
  const std::uint64_t order = give(MemoryOrder::kDrop);
  ASSERT_TRUE(orders().refuse());
  orders().critical(true);
  EXPECT_TRUE(orders().refuse());
  orders().critical(false);
  EXPECT_TRUE(orders().refuse());
  orders().done(order);
  orders().critical(true);
  EXPECT_EQ(client_->slot().memory.critical.load(), 1U);
}

// Prevents: the broker dies in the middle of a refused micro-batch, and the rest of it runs.
TEST_F(OrdersOfABroker, ARefusalOutlivesTheBroker) {
  const std::uint64_t order = give(MemoryOrder::kSleep);
  ASSERT_TRUE(orders().refuse());
  kill_broker();
  EXPECT_TRUE(orders().refuse());
  orders().tick();
  EXPECT_TRUE(orders().refuse());
  const Order rest = Order::unpack(orders().pending());
  EXPECT_EQ(rest.epoch, Order::unpack(order).epoch);
  EXPECT_EQ(rest.kind, MemoryOrder::kDrop) << "there is nobody to wake a sleeper";
  orders().done(rest.pack());
  EXPECT_FALSE(orders().refuse());
  EXPECT_EQ(orders().pending(), 0U);
  EXPECT_FALSE(launches_look());
}

// The same, with a broker that takes its order back or gives a weaker one.
TEST_F(OrdersOfABroker, ARefusalOutlivesItsOrder) {
  give(MemoryOrder::kDrop);
  ASSERT_TRUE(orders().refuse());
  give(MemoryOrder::kNone);
  EXPECT_TRUE(orders().refuse());
  EXPECT_EQ(Order::unpack(orders().pending()).kind, MemoryOrder::kDrop);
  const std::uint64_t shrink = give(MemoryOrder::kShrink);
  const Order both = Order::unpack(orders().pending());
  EXPECT_EQ(both.kind, MemoryOrder::kDrop) << "the micro-batch has lost a launch";
  EXPECT_EQ(both.epoch, Order::unpack(shrink).epoch) << "obeys both";
  orders().done(both.pack());
  EXPECT_FALSE(orders().refuse());
  EXPECT_EQ(orders().pending(), 0U);
}

// Prevents: an order that nobody has heard of counts as obeyed.
TEST_F(OrdersOfABroker, AnOrderThatComesWhileAnotherIsObeyedCounts) {
  const std::uint64_t first = give(MemoryOrder::kDrop);
  ASSERT_TRUE(orders().refuse());
  const std::uint64_t second = give(MemoryOrder::kDrop);
  orders().done(first);
  EXPECT_TRUE(orders().refuse());
  EXPECT_EQ(orders().pending(), second);
  orders().done(first);
  EXPECT_TRUE(orders().refuse());
  orders().done(second);
  EXPECT_FALSE(orders().refuse());
}

TEST_F(OrdersOfABroker, AnOrderOfADeadBrokerRefusesNothing) {
  give(MemoryOrder::kDrop);
  grant(100);
  kill_broker();
  EXPECT_FALSE(orders().refuse());
  EXPECT_EQ(orders().pending(), 0U);
  EXPECT_EQ(orders().grant(), shm::kNoLimit);
  EXPECT_FALSE(launches_look());
}

/// Waits on a thread of its own.
class Sleeper {
 public:
  Sleeper(Orders& orders, std::uint64_t timeout_ns)
      : thread_([this, &orders, timeout_ns] { woken_ = orders.wait_resume(timeout_ns) ? 1 : 0; }) {}
  ~Sleeper() { thread_.join(); }
  bool sleeps_for(std::chrono::milliseconds time) const {
    std::this_thread::sleep_for(time);
    return woken_.load() < 0;
  }
  bool wakes() const {
    return eventually([this] { return woken_.load() == 1; });
  }

 private:
  std::atomic<int> woken_{-1};
  std::thread thread_;
};

TEST_F(OrdersOfABroker, ASleepEndsWithTheNextOrder) {
  orders().done((give(MemoryOrder::kSleep), orders().pending()));
  const Sleeper sleeper(orders(), 10'000 * kMs);
  EXPECT_TRUE(sleeper.sleeps_for(30ms));
  grant(100);
  EXPECT_TRUE(sleeper.sleeps_for(30ms)) << "a grant does not end a sleep";
  give(MemoryOrder::kNone);
  EXPECT_TRUE(sleeper.wakes());
}

// Prevents: the order to go on comes before the program waits for it, and the program sleeps on.
TEST_F(OrdersOfABroker, NewsBetweenTheReportAndTheWaitIsNotLost) {
  orders().done((give(MemoryOrder::kSleep), orders().pending()));
  give(MemoryOrder::kNone);
  EXPECT_EQ(orders().pending(), 0U);
  EXPECT_TRUE(orders().wait_resume(0));
  EXPECT_FALSE(orders().wait_resume(1)) << "that was heard";
}

TEST_F(OrdersOfABroker, AWaitEndsWhenTheGrantChanges) {
  grant(100);
  ASSERT_TRUE(orders().wait_resume(0));
  const Sleeper sleeper(orders(), 10'000 * kMs);
  EXPECT_TRUE(sleeper.sleeps_for(30ms));
  grant(200);
  EXPECT_TRUE(sleeper.wakes());
}

TEST_F(OrdersOfABroker, AWaitEndsWithTheBroker) {
  orders().done((give(MemoryOrder::kEpoch), orders().pending()));
  const Sleeper sleeper(orders(), 10'000 * kMs);
  EXPECT_TRUE(sleeper.sleeps_for(30ms));
  kill_broker();
  EXPECT_TRUE(sleeper.wakes());
}

TEST_F(OrdersOfABroker, AWaitIsBounded) {
  orders().done((give(MemoryOrder::kSleep), orders().pending()));
  const std::uint64_t begin = base::monotonic_ns();
  EXPECT_FALSE(orders().wait_resume(30 * kMs));
  EXPECT_GE(base::monotonic_ns() - begin, 30 * kMs);
}

// Prevents: a launch finds the order done, clears the bit, and so hides the next order. While it
// looks again, a launch of another thread may pass, as if it had come before the order.
TEST_F(OrdersOfABroker, NoOrderIsMissedWhileAnotherIsObeyed) {
  std::atomic<bool> over{false};
  std::thread launches([&] {
    while (!over.load()) static_cast<void>(orders().refuse());
  });
  int missed = 0;
  for (int i = 0; i < 20'000 && missed == 0; ++i) {
    const std::uint64_t order = give(MemoryOrder::kDrop);
    if (!eventually([&] { return orders().refuse(); })) ++missed;
    orders().done(order);
  }
  over.store(true);
  launches.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace sluice::intercept::test
