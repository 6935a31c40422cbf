// Whole programs under the interposer, on one simulated GPU that the users share.
#include <algorithm>
#include <bit>
#include <csignal>

#include "shm/gates.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/simgpu/shared_folder.hpp"
#include "tests/support/look.hpp"

namespace sluice::test {
namespace {

class NodePrograms : public UsersTest {
 protected:
  void TearDown() override {
    UsersTest::TearDown();
    EXPECT_TRUE(gpu_.is_left_empty());
  }
  [[nodiscard]] std::unique_ptr<Process> spin_as(uid_t uid, const std::string& priority,
                                                 const std::string& err,
                                                 const std::string& policy = "device:200us") const {
    std::vector<std::string> command = as_user(uid);
    const std::vector<std::string> more{
        SLUICE_EXEC_PROGRAM, "--priority", priority, "--policy", policy, "--gpu", "sim", "--",
        SLUICE_SPIN_PROGRAM};
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<Process>(std::move(command), ProcessOptions{.err = parent_.file(err)});
  }
  /// The slot of the only client of this user; -1 if there is none yet.
  static int slot_of(const Look& look, uid_t uid) {
    for (int slot = 0; slot < shm::kSlots; ++slot) {
      if (look.slot(slot).uid.load() == uid && look.state(slot) == shm::SlotState::kLive) {
        return slot;
      }
    }
    return -1;
  }
  simgpu::test::SharedFolder gpu_;

  static void end(Process& program) {
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(kProgramPatience), 0);
  }
};

// Prevents: the interposer finds no node service, cannot map its board, or does not come back to a
// new service.
TEST_F(NodePrograms, ProgramsOfTwoUsersGiveWayToEachOther) {
  const std::string policy = R"({"rules": [{"user": 12345, "max_priority": 10}]})";
  start(policy);
  // First the program of the other user: the GPU's process is then hers, and cannot read his memory
  // but through the descriptor of the board.
  const auto high = spin_as(kAnna, "10", "high");
  ASSERT_TRUE(eventually([] { return slot_of(Look("node"), kAnna) >= 0; }, kProgramPatience));
  const auto low = spin_as(kBert, "0", "low");
  const auto held = [] {
    const Look look("node");
    const int low_slot = slot_of(look, kBert);
    const int high_slot = slot_of(look, kAnna);
    return low_slot >= 0 && high_slot >= 0 && (look.gate(low_slot) & shm::bit(high_slot)) != 0;
  };
  EXPECT_TRUE(eventually(held, kProgramPatience)) << read_file(parent_.file("high"));
  kill_service();
  start(policy);
  EXPECT_NE(ready_line().find("board=adopted"), std::string::npos) << ready_line();
  EXPECT_TRUE(eventually(held, kProgramPatience));
  EXPECT_TRUE(eventually([&] { return log().find("client attached again") != std::string::npos; },
                         kProgramPatience));
  // The GPU reads the gate, which is in memory of another user.
  const auto waited = [] {
    const Look look("node");
    const int slot = slot_of(look, kBert);
    if (slot < 0) return false;
    const auto& entries = look.slot(slot).entries;
    return std::any_of(entries.begin(), entries.end(),
                       [](const auto& entry) { return entry.value(shm::Count::kWaited) != 0; });
  };
  EXPECT_TRUE(eventually(waited, kProgramPatience));
  end(*high);
  end(*low);
  EXPECT_EQ(read_file(parent_.file("low")), "");
  EXPECT_EQ(read_file(parent_.file("high")), "");
}

// Prevents: a program that can only read the board hangs at its gate: its wake-up is lost, its
// holder is stopped, or the service and its holder die together.
TEST_F(NodePrograms, AProgramThatOnlyReadsIsHeldAndGoesOn) {
  constexpr const char* kPolicy = R"({"rules": [{"user": 12345, "max_priority": 10}]})";
  start(kPolicy);
  const auto first = spin_as(kAnna, "10", "first");
  ASSERT_TRUE(eventually([] { return slot_of(Look("node"), kAnna) >= 0; }, kProgramPatience));
  const auto low = spin_as(kBert, "0", "low", "gate");
  ASSERT_TRUE(eventually([] { return slot_of(Look("node"), kBert) >= 0; }, kProgramPatience));
  const Look look("node");
  const int slot = slot_of(look, kBert);
  const shm::Slot& low_slot = look.slot(slot);
  EXPECT_EQ(low_slot.reader.load(), 1U);
  const auto count = [&](shm::Count what) {
    std::uint64_t sum = 0;
    for (const auto& entry : low_slot.entries) sum += entry.value(what);
    return sum;
  };
  EXPECT_TRUE(eventually([&] { return count(shm::Count::kWaited) > 3; }, kProgramPatience));
  // Until it is stopped inside a job.
  const auto stops_in_a_job = [&] {
    first->stop();
    if (look.gate(slot) != 0) return true;
    first->signal(SIGCONT);
    return false;
  };
  ASSERT_TRUE(eventually(stops_in_a_job, kProgramPatience));
  EXPECT_TRUE(eventually([&] { return look.gate(slot) == 0; }, kProgramPatience));
  const std::uint64_t before = count(shm::Count::kGated);
  EXPECT_TRUE(eventually([&] { return count(shm::Count::kGated) > before; }, kProgramPatience));
  first->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return look.gate(slot) != 0; }, kProgramPatience)) << "obeyed again";
  const std::uint64_t of_first = shm::bit(slot_of(look, kAnna));
  const auto second = spin_as(kAnna, "5", "second");
  const auto second_lives = [&] {
    const std::uint64_t other = look.board().used.load() & ~shm::bit(slot) & ~of_first;
    return other != 0 && look.state(std::countr_zero(other)) == shm::SlotState::kLive;
  };
  ASSERT_TRUE(eventually(second_lives, kProgramPatience));
  kill_service();
  first->signal(SIGKILL);
  EXPECT_EQ(first->wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return (look.gate(slot) & of_first) == 0; }, kProgramPatience));
  start(kPolicy);  // or nobody clears what the second one writes while it ends
  end(*second);
  end(*low);
}

// Prevents: a user whose priority was refused believes that it was granted.
TEST_F(NodePrograms, ARefusedPriorityIsSaidOnceByTheProgram) {
  start();
  const auto bold = spin_as(kBert, "200", "bold");
  const auto said = [&] { return read_file(parent_.file("bold")); };
  EXPECT_TRUE(eventually([&] { return said().find('\n') != std::string::npos; }, kProgramPatience));
  end(*bold);
  EXPECT_NE(said().find("session node: priority 200 is refused: user uid 12346 may ask for at most "
                        "0; runs at priority 0"),
            std::string::npos)
      << said();
  const std::string lines = said();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

}  // namespace
}  // namespace sluice::test
