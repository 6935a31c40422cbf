// Prevents: a trainer that is never found on the board, so that its memory is nobody's and no order
// reaches it; and orders to a program that is not the trainer.
#include "server/training/trainer_slot.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "server/training/process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/session.hpp"

namespace sluice::server::training {
namespace {

class TrainerSlotTest : public testing::Test {
 protected:
  TrainerSlotTest() { add(0, getpid(), 1000); }

  void add(std::size_t index, pid_t pid, std::uint64_t held) {
    shm::Slot& slot = board_.mapping.board().slots[index];
    slot.pid.store(static_cast<std::uint32_t>(pid));
    slot.memory.held.store(held);
    slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
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
  slot_.follow(program.pid());
  EXPECT_FALSE(slot_.memory().attached);
  add(1, program.pid(), 10);
  EXPECT_TRUE(slot_.memory().attached);
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
