// Prevents: a trainer that is never found on the board, so that its memory is nobody's and no order
// reaches it; and orders to a program that is not the trainer.
#include "server/training/trainer_slot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/training/process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/session.hpp"

namespace sluice::server::training {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMs = 1'000'000;

class TrainerSlotTest : public testing::Test {
 protected:
  TrainerSlotTest() { add(0, getpid(), 1000); }

  void add(std::size_t index, pid_t pid, std::uint64_t held, std::uint8_t device = 0) {
    shm::Slot& slot = board_.mapping.board().slots[index];
    slot.pid.store(static_cast<std::uint32_t>(pid));
    slot.memory.held.store(held);
    slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, device, 1}.pack());
  }
  /// What a script prints first: the pid of a child of it.
  static pid_t child_of(Process& script) {
    pid_t child = 0;
    EXPECT_TRUE(test::eventually([&] {
      script.read_lines([&](const std::string& line) { child = std::stoi(line); });
      return child != 0;
    }));
    return child;
  }

  const test::Session session_{"trainer-slot"};
  shm::BoardMapping::Adoption board_ = shm::BoardMapping::adopt_or_create(session_.name());
  TrainerSlot slot_{session_.name()};
};

TEST_F(TrainerSlotTest, FindsTheProcessThatWasStarted) {
  const Process program({"/bin/sleep", "60"}, {});
  EXPECT_THAT(slot_.why_not_attached(), HasSubstr("no trainer"));
  slot_.follow(program.pid());
  EXPECT_FALSE(slot_.memory().attached);
  EXPECT_THAT(slot_.why_not_attached(), HasSubstr("has not used the GPU"));
  add(1, program.pid(), 10);
  EXPECT_TRUE(slot_.memory().attached);
  EXPECT_EQ(slot_.why_not_attached(), "");
  EXPECT_EQ(slot_.memory().held, 10U);
  slot_.follow(0);
  EXPECT_FALSE(slot_.memory().attached);
}

TEST_F(TrainerSlotTest, FindsAProgramThatAScriptHasStarted) {
  Process script({"/bin/sh", "-c", "sleep 60 & echo $!; wait"}, {});
  slot_.follow(script.pid());
  add(1, child_of(script), 10);
  EXPECT_EQ(slot_.memory().held, 10U);
  EXPECT_EQ(slot_.memory_use().train, 10U);
  EXPECT_EQ(slot_.memory_use().infer, 1000U);
}

// Its profile would not show why a handover took long.
TEST_F(TrainerSlotTest, AnOrderHasThePartsOfHowItWasObeyed) {
  const Process program({"/bin/sleep", "60"}, {});
  slot_.follow(program.pid());
  add(1, program.pid(), 10);
  const std::uint64_t epoch = slot_.order(shm::MemoryOrder::kSleep);
  ASSERT_NE(epoch, 0U);
  EXPECT_FALSE(slot_.done(epoch));
  shm::MemoryLine& line = board_.mapping.board().slots[1].memory;
  const std::uint64_t ordered = line.order_ns.load();
  shm::note_waited(line, ordered + 2 * kMs, ordered + 5 * kMs);
  ASSERT_TRUE(shm::note_obeyed(line, epoch));
  line.done_ns.store(ordered + 9 * kMs);
  EXPECT_TRUE(slot_.done(epoch));
  const shm::ObeyParts parts = slot_.parts();
  EXPECT_EQ(parts.drop_ns, 2 * kMs);
  EXPECT_EQ(parts.drain_ns, 3 * kMs);
  EXPECT_EQ(parts.give_ns, 4 * kMs);
}

// Prevents: orders in the name of a client on another device, and memory of other devices in the
// profile.
TEST_F(TrainerSlotTest, TheBrokerIsTheClientOfTheTrainersDevice) {
  const Process program({"/bin/sleep", "60"}, {});
  slot_.follow(program.pid());
  add(1, program.pid(), 10, 4);
  EXPECT_EQ(slot_.order(shm::MemoryOrder::kSleep), 0U) << "this process is not there";
  EXPECT_THAT(slot_.why_not_attached(), HasSubstr("no model of the server"));
  add(2, getpid(), 500, 4);
  add(3, 1, 7, 4);
  add(4, 1, 9, 5);
  ASSERT_NE(slot_.order(shm::MemoryOrder::kSleep), 0U);
  const auto& slots = board_.mapping.board().slots;
  EXPECT_EQ(slots[1].memory.broker.load(), shm::id_of(shm::SlotOf{2, 1}));
  const MemoryUse use = slot_.memory_use();
  EXPECT_EQ(use.infer, 1500U);
  EXPECT_EQ(use.train, 10U);
  EXPECT_EQ(use.total, 1517U);
}

TEST_F(TrainerSlotTest, LeavesOtherProgramsAlone) {
  const Process program({"/bin/sleep", "60"}, {});
  const Process other({"/bin/sleep", "60"}, {});
  slot_.follow(program.pid());
  add(1, other.pid(), 10);
  EXPECT_FALSE(slot_.memory().attached);
  EXPECT_EQ(slot_.memory_use().train, 0U);
  EXPECT_EQ(slot_.memory_use().total, 1010U);
}

}  // namespace
}  // namespace sluice::server::training
