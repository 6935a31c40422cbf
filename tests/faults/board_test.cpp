// Boards that cannot be used (another layout, truncated, stale), and what a session leaves behind.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "shm/session.hpp"
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

class Boards : public EndToEndTest {
 protected:
  /// Writes to the board's file, as a process of another version would.
  void write_at(off_t offset, std::uint32_t value) const {
    const int fd = open(board_file().c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(pwrite(fd, &value, sizeof(value), offset), ssize_t{sizeof(value)});
    close(fd);
  }

  /// Expects a program to run on ungated after one warning with these words.
  void expect_ungated_with(const std::string& words) {
    Program& program = start_unattached({0, "device:4"});
    program.ask("loop 1 100 8");
    EXPECT_TRUE(flows(program));
    EXPECT_EQ(count_of(program.said(), words), 1U) << program.said();
    EXPECT_EQ(count_of(program.said(), "warning:"), 1U) << program.said();
    program.ask("halt");
    program.tell("exit");
    EXPECT_EQ(program.wait(), 0);
  }
};

// Prevents: a library and a controller of different builds interpret one board differently.
// Seen to fail without the version in fault_of(): attached, no warning.
TEST_F(Boards, OfAnotherLayoutVersion) {
  start_controller();
  write_at(offsetof(shm::Board, layout_version), shm::kLayoutVersion + 1);
  expect_ungated_with("has layout version " + std::to_string(shm::kLayoutVersion + 1));
  // When no process uses the board any more, the next controller creates a new one.
  kill_controller();
  start_controller();
  Program& program = start_best_effort("device:4");
  EXPECT_EQ(state_of(program), shm::SlotState::kLive);
}

// Prevents: a controller takes a board of another layout version away from living processes.
// Seen to fail in the same way: the controller takes the board.
TEST_F(Boards, OfAnotherLayoutVersionWithLivingClients) {
  start_controller();
  Program& program = start_best_effort("device:4");
  program.ask("loop 1 100 8");
  kill_controller();
  write_at(offsetof(shm::Board, layout_version), shm::kLayoutVersion + 1);
  EXPECT_EQ(launch_controller()->wait(), 1);
  EXPECT_EQ(count_of(log(), "processes still use it: end them first"), 1U) << log();
  EXPECT_TRUE(flows(program));
  write_at(offsetof(shm::Board, layout_version), shm::kLayoutVersion);
}

// Prevents: SIGBUS on a mapping beyond the end of the file.
// Seen to fail without the size in fault_of(): the program is killed by SIGBUS.
TEST_F(Boards, Truncated) {
  start_controller();
  const std::string whole = board_file() + ".whole";
  fs::rename(board_file(), whole);
  const int fd = open(board_file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  close(fd);
  expect_ungated_with("is truncated (4096 of ");
  // A controller that starts while no process uses the board replaces the board.
  kill_controller();
  fs::remove(whole);
  start_controller();
  Program& program = start_best_effort("device:4");
  EXPECT_EQ(state_of(program), shm::SlotState::kLive);
}

// Prevents: the board of a killed controller keeps slots of programs that no longer exist.
// Seen to fail when adopt_or_create() adopts every board that it finds.
TEST_F(Boards, StaleOfADeadController) {
  start_controller();
  Program& program = start_best_effort("device:4");
  program.ask("loop 1 100 8");
  const std::uint64_t board_id = look().board().board_id.load();
  kill_controller();
  program.signal(SIGKILL);
  program.wait();
  ASSERT_TRUE(fs::exists(board_file())) << "no process was left to remove it";
  start_controller();
  // A real driver may still be tearing the dead process down. Then the controller adopts and cleans
  // the board.
  if (!on_real_gpu()) {
    EXPECT_NE(look().board().board_id.load(), board_id);
  }
  EXPECT_EQ(look().board().used.load(), 0U);
  Program& next = start_best_effort("device:4");
  EXPECT_EQ(slot_of(next), 0);
}

// Prevents: a name, a folder or a process stays behind after the last process of a session leaves
// in good order. TearDown checks this after every test too, but ends the GPU process itself.
// Seen to fail without remove_if_unused() in the controller.
TEST_F(Boards, NothingStaysBehind) {
  start_controller();
  Program& program = start_best_effort("device:4");
  program.ask("loop 1 100 8");
  EXPECT_TRUE(flows(program));
  end_all();
  EXPECT_TRUE(eventually([&] {
    const auto left = left_over();
    return left.empty() || (left.size() == 1 && left[0].find("progress.") != std::string::npos);
  }));
}

// Prevents: the same, if the controller was killed before the last client ended.
// Seen to fail without remove_if_unused() in leave_at_exit().
TEST_F(Boards, NothingStaysBehindAKilledController) {
  start_controller();
  Program& first = start_best_effort("device:4");
  Program& second = start_critical();
  first.ask("loop 1 100 8");
  kill_controller();
  ASSERT_TRUE(flows(first));
  second.tell("exit");
  EXPECT_EQ(second.wait(), 0);
  EXPECT_TRUE(fs::exists(board_file())) << "removed although a client lives";
  first.tell("exit");
  EXPECT_EQ(first.wait(), 0);
  EXPECT_FALSE(fs::exists(board_file()));
  EXPECT_FALSE(fs::exists(shm::socket_path(session_)));
}

}  // namespace
}  // namespace sluice::test
