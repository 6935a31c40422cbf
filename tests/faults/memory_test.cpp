// Orders of a broker to a program that obeys them, and what happens when one of the two is killed.
// The critical program stands for the broker: the test writes in its name.
#include "shm/memory.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

using shm::MemoryOrder;

constexpr std::uint64_t kMib = 8;
constexpr std::uint64_t kBytes = kMib << 20U;

class Handover : public EndToEndTest {
 protected:
  void SetUp() override {
    EndToEndTest::SetUp();
    start_controller();
    trainer_ = &start_best_effort("device:200us,ahead:2ms");
    broker_ = &start_critical();
    board_.emplace(shm::BoardMapping::attach(session_));
    trainer_->ask("train 100 " + std::to_string(kMib));
    ASSERT_TRUE(flows(*trainer_));
    ASSERT_TRUE(eventually([&] { return line().held.load() == kBytes; }));
  }
  void TearDown() override {
    EXPECT_EQ(trainer_->said(), "") << "it gave a wait up";
    board_.reset();  // or this process would count as a user of the board
    EndToEndTest::TearDown();
  }
  shm::SlotOf client(const Program& program) {
    const int slot = slot_of(program);
    const auto word = board_->board().slots[static_cast<std::size_t>(slot)].info.load();
    return {slot, shm::SlotInfo::unpack(word).generation};
  }
  shm::MemoryLine& line() {
    return board_->board().slots[static_cast<std::size_t>(slot_of(*trainer_))].memory;
  }
  void give(MemoryOrder kind) {
    const std::uint64_t order =
        shm::give_order(board_->board(), client(*broker_), client(*trainer_), kind);
    const bool obeys = kind != MemoryOrder::kNone;
    EXPECT_TRUE(!obeys || eventually([&] { return line().done.load() == order >> 8U; }));
  }
  /// Whether no more of its work is launched.
  bool rests() const {
    const std::uint64_t before = trainer_->launched();
    std::this_thread::sleep_for(100ms);
    return trainer_->launched() == before;
  }

  Program* trainer_ = nullptr;
  Program* broker_ = nullptr;
  std::optional<shm::BoardMapping> board_;
};

TEST_F(Handover, ATrainerSleepsAndGoesOn) {
  give(MemoryOrder::kSleep);
  EXPECT_EQ(line().held.load(), 0U);
  EXPECT_TRUE(rests());
  EXPECT_GE(line().done_ns.load(), line().order_ns.load());
  give(MemoryOrder::kNone);
  EXPECT_TRUE(flows(*trainer_));
  EXPECT_TRUE(eventually([&] { return line().held.load() == kBytes; }));
}

TEST_F(Handover, ATrainerDropsAndGoesOn) {
  shm::set_grant(board_->board(), client(*broker_), client(*trainer_), kBytes - 1);
  for (int i = 0; i < 20; ++i) give(MemoryOrder::kDrop);
  EXPECT_TRUE(flows(*trainer_));
  EXPECT_EQ(line().held.load(), 0U) << "more than its grant";
}

// Prevents: a server is killed, and the training sleeps for good.
TEST_F(Handover, AKilledBrokerLeavesNobodyAsleep) {
  shm::set_grant(board_->board(), client(*broker_), client(*trainer_), 1);
  give(MemoryOrder::kSleep);
  EXPECT_TRUE(rests());
  broker_->signal(SIGKILL);
  broker_->wait();
  EXPECT_TRUE(flows(*trainer_));
  EXPECT_TRUE(eventually([&] { return line().held.load() == kBytes; })) << "still limited";
}

// The same in the middle of a job of the broker, while it drains the trainer.
TEST_F(Handover, AKilledBrokerLeavesNobodyHeldOrDrained) {
  broker_->ask("begin");
  EXPECT_TRUE(becomes_held(*trainer_));
  shm::begin_drain(board_->board(), client(*broker_), client(*trainer_));
  EXPECT_EQ(gate_of(*trainer_), 0U);
  give(MemoryOrder::kSleep);
  broker_->signal(SIGKILL);
  broker_->wait();
  EXPECT_TRUE(flows(*trainer_));
  EXPECT_TRUE(eventually([&] { return line().draining.load() == 0; }));
}

// Prevents: the memory of a killed process counts as free while the kernel still has it.
TEST_F(Handover, WhatAKilledTrainerHoldsIsFreeWhenItsProcessIsGone) {
  trainer_->ask("touch 320");  // some 25 ms of teardown
  const shm::MemoryLine& memory = line();
  bool early = false;
  trainer_->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const bool cleared = memory.held.load() == 0;
    siginfo_t info{};
    const auto pid = static_cast<id_t>(trainer_->pid());
    const bool asked = waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    early = early || (cleared && asked && info.si_pid == 0);
    return cleared;
  }));
  trainer_->wait();
  EXPECT_FALSE(early);
  EXPECT_EQ(memory.order.load(), 0U);
  EXPECT_EQ(memory.grant.load(), shm::kNoLimit);
}

// Prevents: what is queued takes longer than the bound, so memory comes late.
TEST_F(Handover, ATrainerRunsAheadForTheBoundOnly) {
  constexpr int kLooks = 500;
  std::uint64_t most = 0;
  int above = 0;  // a host that pauses makes kernels seem shorter for a moment, so more are queued
  std::this_thread::sleep_for(300ms);  // its durations are known
  for (int i = 0; i < kLooks; ++i) {
    // In this order, what ends between the two looks does not count as queued.
    const std::uint64_t launched = trainer_->launched();
    const std::uint64_t done = trainer_->done();
    const std::uint64_t queued = launched - std::min(launched, done);
    most = std::max(most, queued);
    above += queued > 22 ? 1 : 0;
    std::this_thread::sleep_for(1ms);
  }
  std::printf(
      "[ahead] 2 ms of kernels of 0.1 ms: %llu were queued at most, %d times more than 22\n",
      static_cast<unsigned long long>(most), above);
  EXPECT_LE(above, kLooks / 10) << "20, the next one, and the one that runs";
  EXPECT_GE(most, 10U) << "the GPU runs dry";
}

}  // namespace
}  // namespace sluice::test
