// What a controller does with a board or socket that it finds.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "shm/session.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

class FoundBoard : public ControllerTest {
 protected:
  /// Runs a controller that is to be refused. Its one line.
  std::string refused_with() {
    const std::size_t before = log().size();
    EXPECT_EQ(launch_controller()->wait(), 1);
    const std::string said = log().substr(before);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    return said;
  }

  void kill_controller(Process& controller) {
    controller.signal(SIGKILL);
    controller.wait();
  }

  void stop(Process& controller) {
    controller.signal(SIGTERM);
    EXPECT_EQ(controller.wait(), 0);
  }
};

// Prevents: two controllers give out the same slots.
TEST_F(FoundBoard, ASecondControllerIsRefusedByNameAndPid) {
  const auto controller = start_controller();
  const std::string said = refused_with();
  EXPECT_NE(said.find("session " + session_), std::string::npos) << said;
  EXPECT_NE(said.find("pid " + std::to_string(controller->pid())), std::string::npos) << said;
  ask_controller(connect_to(session_).get(), good_request());  // the first is unharmed
  stop(*controller);
}

// Prevents: a session that no controller can have again after a crash.
TEST_F(FoundBoard, StaleBoardAndSocketAreReplaced) {
  auto controller = start_controller();
  const std::uint64_t old_id = Look(session_).board().board_id.load();
  kill_controller(*controller);
  ASSERT_TRUE(std::filesystem::exists(board_file()));
  ASSERT_TRUE(std::filesystem::exists(shm::socket_path(session_)));
  controller = start_controller();
  EXPECT_NE(Look(session_).board().board_id.load(), old_id);
  EXPECT_EQ(ask_controller(connect_to(session_).get(), good_request()).status,
            shm::ReplyStatus::kOk);
  stop(*controller);
}

// Prevents: an upgrade breaks on the board of the old version; or living clients of the old
// version lose theirs.
TEST_F(FoundBoard, AnotherLayoutVersionIsReplacedOnlyWhenNobodyUsesIt) {
  auto controller = start_controller();
  kill_controller(*controller);
  {
    const shm::BoardMapping user = shm::BoardMapping::attach(session_);
    user.board().layout_version.store(shm::kLayoutVersion + 1);
    const std::string said = refused_with();
    EXPECT_NE(said.find("layout version " + std::to_string(shm::kLayoutVersion + 1)),
              std::string::npos)
        << said;
    EXPECT_EQ(user.board().layout_version.load(), shm::kLayoutVersion + 1) << "left alone";
  }
  controller = start_controller();
  EXPECT_EQ(Look(session_).board().layout_version.load(), shm::kLayoutVersion);
  stop(*controller);
}

// Prevents: SIGBUS of the controller on a board that is too short.
TEST_F(FoundBoard, ATruncatedBoardIsReplacedOnlyWhenNobodyUsesIt) {
  auto controller = start_controller();
  kill_controller(*controller);
  {
    const shm::BoardMapping user = shm::BoardMapping::attach(session_);
    ASSERT_EQ(truncate(board_file().c_str(), 5000), 0);
    const std::string said = refused_with();
    EXPECT_NE(said.find("truncated"), std::string::npos) << said;
  }
  controller = start_controller();
  EXPECT_EQ(std::filesystem::file_size(board_file()), sizeof(shm::Board));
  stop(*controller);
}

// Prevents: two last clients that leave together each leave the board to the other.
TEST_F(FoundBoard, TheLastUserRemovesItEvenWhereTwoLeaveTogether) {
  const auto controller = start_controller();
  shm::BoardMapping one = shm::BoardMapping::attach(session_);
  shm::BoardMapping other = shm::BoardMapping::attach(session_);
  EXPECT_FALSE(one.remove_if_unused()) << "there is a controller";
  kill_controller(*controller);
  shm::BoardMapping third = shm::BoardMapping::attach(session_);
  EXPECT_FALSE(other.remove_if_unused()) << "there is a third";
  EXPECT_TRUE(third.remove_if_unused());
  std::filesystem::remove(shm::socket_path(session_));
}

// Prevents: another user plants a board that we then trust.
TEST_F(FoundBoard, AnotherUsersBoardIsRefused) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's file";
  base::Fd(open(board_file().c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_EQ(chown(board_file().c_str(), kNobody, kNobody), 0);
  const std::string said = refused_with();
  EXPECT_NE(said.find("belongs to another user"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::exists(board_file())) << "it is not ours to remove";
  std::filesystem::remove(board_file());
}

// Prevents: another user plants the folder of our sockets. This user's own is in use by others, so
// a user whom nobody else has gets one that belongs to root.
TEST_F(FoundBoard, AnotherUsersFolderIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's folder";
  const uid_t user = 1'000'000'000 + static_cast<uid_t>(getpid());
  const std::string folder = "/dev/shm/sluice-" + std::to_string(user);
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  ForkedChild controller([&] {
    const base::Fd log(open(log_path().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    dup2(log.get(), STDERR_FILENO);
    if (setresuid(user, user, user) != 0) return 126;
    execl(SLUICE_CONTROLLER_PROGRAM, SLUICE_CONTROLLER_PROGRAM, "--session", session_.c_str(),
          nullptr);
    return 127;
  });
  const int exit_code = controller.wait();
  std::filesystem::remove(folder);
  if (exit_code == 127) GTEST_SKIP() << "other users cannot read this build";
  EXPECT_EQ(exit_code, 1);
  EXPECT_NE(log().find(folder + " belongs to another user"), std::string::npos) << log();
  EXPECT_TRUE(files_of_session(session_).empty()) << "a start that failed leaves nothing";
}

// Prevents: a file of the user's is deleted because it has the socket's name.
TEST_F(FoundBoard, WhatIsNoSocketIsNotReplaced) {
  base::ensure_runtime_dir();
  base::Fd(open(shm::socket_path(session_).c_str(), O_CREAT | O_RDWR, 0600));
  const std::string said = refused_with();
  EXPECT_NE(said.find("is not a socket"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::exists(shm::socket_path(session_)));
  std::filesystem::remove(shm::socket_path(session_));
}

}  // namespace
}  // namespace sluice::test
