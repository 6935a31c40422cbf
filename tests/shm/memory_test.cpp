// Grants and orders of a broker: for whom they count, and that they end with the broker.
#include "shm/memory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "shm/gates.hpp"
#include "shm/view.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/shared.hpp"
#include "tests/support/signal.hpp"

namespace sluice::shm {
namespace {

using test::eventually;
using test::ForkedChild;
using test::Shared;
using test::Signal;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr int kBroker = 3;
constexpr int kClient = 5;

/// A broker that this process plays, unless a test lets a child play it, and a client.
class Memory : public testing::Test {
 protected:
  Memory() {
    for (Slot& slot : board->slots) {
      slot.alive.initialise();
      reset(slot.memory);
    }
    for (const auto& [slot, priority] : {std::pair(kBroker, 1), std::pair(kClient, 0)}) {
      reserve(view, slot, static_cast<std::uint8_t>(priority), 0);
      go_live(view, slot);
    }
  }
  /// A mutex that is unmapped while held stays in its thread's list, and the thread's next one
  /// crashes.
  ~Memory() override {
    if (live_) board->slots[kBroker].alive.release();
  }
  SlotOf as_now(int slot) { return {slot, SlotInfo::unpack(view.info(slot).load()).generation}; }
  SlotOf broker() { return as_now(kBroker); }
  SlotOf client() { return as_now(kClient); }
  MemoryLine& line() { return board->slots[kClient].memory; }
  bool live() { return live_ = board->slots[kBroker].alive.take(); }

  bool live_ = false;
  Shared<Board> board;
  BoardView view{*board};
};

TEST_F(Memory, WithoutABrokerThereIsNoLimitAndNoOrder) {
  EXPECT_EQ(grant_of(*board, client()), kNoLimit);
  EXPECT_EQ(pending_order(*board, client()), Order{});
}

TEST_F(Memory, AGrantAndAnOrderReachTheClient) {
  ASSERT_TRUE(live());
  set_grant(*board, broker(), client(), kGiB);
  const std::uint64_t order = give_order(*board, broker(), client(), MemoryOrder::kDrop);
  EXPECT_EQ(grant_of(*board, client()), kGiB);
  EXPECT_EQ(pending_order(*board, client()).pack(), order);
  EXPECT_NE(line().order_ns.load(), 0U);
  EXPECT_EQ(board->slots[kClient].outranked.load() & kOrdered, kOrdered) << "launches look";
  EXPECT_TRUE(note_obeyed(line(), Order::unpack(order).epoch));
  EXPECT_EQ(pending_order(*board, client()), Order{});
  EXPECT_EQ(last_order(*board, client()).pack(), order);
  EXPECT_FALSE(note_obeyed(line(), Order::unpack(order).epoch)) << "reported twice";
  EXPECT_EQ(line().answered.load(), 1U);
}

// Prevents: a report about an order that is not the last one hides the last one.
TEST_F(Memory, AnOldReportDoesNotObeyANewOrder) {
  ASSERT_TRUE(live());
  const auto first = Order::unpack(give_order(*board, broker(), client(), MemoryOrder::kShrink));
  const auto second = Order::unpack(give_order(*board, broker(), client(), MemoryOrder::kDrop));
  EXPECT_EQ(second.epoch, first.epoch + 1);
  EXPECT_TRUE(note_obeyed(line(), first.epoch));
  EXPECT_EQ(pending_order(*board, client()), second);
  EXPECT_FALSE(note_obeyed(line(), second.epoch + 1)) << "an order that was not given";
  EXPECT_EQ(pending_order(*board, client()), second);
  EXPECT_TRUE(note_obeyed(line(), second.epoch));
  EXPECT_FALSE(note_obeyed(line(), first.epoch)) << "a late report";
  EXPECT_EQ(line().done.load(), second.epoch);
}

// Prevents: a server is killed, and a training process sleeps for the rest of its life.
// Seen to fail without the look at the mutex in client_lives().
TEST_F(Memory, EverythingEndsWithTheBroker) {
  const Signal given;
  ForkedChild killed([&] {
    if (!live()) return 1;
    set_grant(*board, broker(), client(), kGiB);
    give_order(*board, broker(), client(), MemoryOrder::kSleep);
    given.raise();
    for (;;) pause();
  });
  ASSERT_TRUE(given.wait());
  ASSERT_EQ(grant_of(*board, client()), kGiB);
  ASSERT_EQ(pending_order(*board, client()).kind, MemoryOrder::kSleep);
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_EQ(grant_of(*board, client()), kNoLimit);
  EXPECT_EQ(pending_order(*board, client()), Order{});
}

// Prevents: the next broker gives its name to the words of the one that died.
TEST_F(Memory, TheNextBrokerBeginsAnew) {
  ForkedChild dead([&] {
    if (!live()) return 1;
    set_grant(*board, broker(), client(), kGiB);
    give_order(*board, broker(), client(), MemoryOrder::kSleep);
    return 0;
  });
  ASSERT_EQ(dead.wait(), 0);
  const std::uint64_t sleep = line().order.load();
  release(view, kBroker);
  reserve(view, kBroker, 1, 0);
  go_live(view, kBroker);
  ASSERT_TRUE(live());
  EXPECT_EQ(grant_of(*board, client()), kNoLimit) << "the slot, but another process";
  set_grant(*board, broker(), client(), 2 * kGiB);
  EXPECT_EQ(pending_order(*board, client()), Order{});
  const auto order = give_order(*board, broker(), client(), MemoryOrder::kShrink);
  EXPECT_GT(order >> 8U, sleep >> 8U) << "epochs never repeat";
  EXPECT_EQ(grant_of(*board, client()), 2 * kGiB);
}

// Prevents: a broker that has not noticed a death limits the next process in the slot.
TEST_F(Memory, WordsForAnEarlierClientDoNotCount) {
  ASSERT_TRUE(live());
  const SlotOf before = client();
  set_grant(*board, broker(), before, kGiB);
  reset(line());
  release(view, kClient);
  reserve(view, kClient, 0, 0);
  go_live(view, kClient);
  set_grant(*board, broker(), before, kGiB);
  give_order(*board, broker(), before, MemoryOrder::kDrop);
  EXPECT_EQ(grant_of(*board, client()), kNoLimit);
  EXPECT_EQ(pending_order(*board, client()), Order{});
}

TEST_F(Memory, ABrokerThatLeavesLimitsNobody) {
  ASSERT_TRUE(live());
  set_grant(*board, broker(), client(), kGiB);
  leave(view, kBroker);
  EXPECT_EQ(grant_of(*board, client()), kNoLimit);
}

// Prevents: a report in which a client took longer for a part than for the whole, or in which an
// order has the wait of an earlier one.
TEST_F(Memory, TheWayToObeyHasParts) {
  constexpr std::uint64_t kMs = 1'000'000;
  ASSERT_TRUE(live());
  EXPECT_EQ(obey_parts(line()).drop_ns, 0U);
  const auto first = Order::unpack(give_order(*board, broker(), client(), MemoryOrder::kDrop));
  const std::uint64_t ordered = line().order_ns.load();
  note_waited(line(), ordered + 2 * kMs, ordered + 5 * kMs);
  note_waited(line(), ordered + 6 * kMs, ordered + 7 * kMs);
  EXPECT_EQ(obey_parts(line()).drop_ns, 0U) << "not obeyed yet";
  ASSERT_TRUE(note_obeyed(line(), first.epoch));
  line().done_ns.store(ordered + 10 * kMs);
  EXPECT_EQ(obey_parts(line()).drop_ns, 2 * kMs);
  EXPECT_EQ(obey_parts(line()).drain_ns, 4 * kMs);
  EXPECT_EQ(obey_parts(line()).give_ns, 4 * kMs);
  line().done_ns.store(ordered + 5 * kMs);
  EXPECT_EQ(obey_parts(line()).drain_ns, 3 * kMs) << "never more than the whole";
  EXPECT_EQ(obey_parts(line()).give_ns, 0U);

  const auto second = Order::unpack(give_order(*board, broker(), client(), MemoryOrder::kDrop));
  line().order_ns.store(ordered + 20 * kMs);
  ASSERT_TRUE(note_obeyed(line(), second.epoch));
  line().done_ns.store(ordered + 22 * kMs);
  EXPECT_EQ(obey_parts(line()).drop_ns, 2 * kMs) << "it did not wait: only the whole is known";
  EXPECT_EQ(obey_parts(line()).drain_ns, 0U);
  note_waited(line(), ordered + 21 * kMs, ordered + 22 * kMs);
  EXPECT_EQ(obey_parts(line()).drop_ns, kMs);
  EXPECT_EQ(obey_parts(line()).drain_ns, kMs) << "without the wait of the first order";
}

TEST_F(Memory, ThePeakStays) {
  note_held(line(), 3);
  note_held(line(), 1);
  EXPECT_EQ(line().held.load(), 1U);
  EXPECT_EQ(line().peak.load(), 3U);
}

}  // namespace
}  // namespace sluice::shm
