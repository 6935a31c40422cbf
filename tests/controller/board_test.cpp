// How a controller treats an existing board or socket.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "shm/session.hpp"
#include "tests/support/attached_client.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

class FoundBoard : public ControllerTest {
 protected:
  /// Runs a controller that must refuse to start. Returns its one line.
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

// Prevents: two controllers give the same slots out.
TEST_F(FoundBoard, ASecondControllerIsRefusedByNameAndPid) {
  const auto controller = start_controller();
  const std::string said = refused_with();
  EXPECT_NE(said.find("session " + session_), std::string::npos) << said;
  EXPECT_NE(said.find("pid " + std::to_string(controller->pid())), std::string::npos) << said;
  ask_controller(connect_to(session_).get(), good_request());  // the first controller still works
  stop(*controller);
}

// Prevents: after a crash no controller can start in the session.
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

// Prevents: an upgraded controller cannot start because of an old board, or replaces the board of
// living clients of the old version.
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
    EXPECT_EQ(user.board().layout_version.load(), shm::kLayoutVersion + 1)
        << "the board was changed";
  }
  controller = start_controller();
  EXPECT_EQ(Look(session_).board().layout_version.load(), shm::kLayoutVersion);
  stop(*controller);
}

// Prevents: a truncated board kills the controller with SIGBUS.
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

// Prevents: two last clients that leave at the same time each leave the board to the other.
TEST_F(FoundBoard, TheLastUserRemovesItEvenWhereTwoLeaveTogether) {
  const auto controller = start_controller();
  shm::BoardMapping one = shm::BoardMapping::attach(session_);
  shm::BoardMapping other = shm::BoardMapping::attach(session_);
  EXPECT_FALSE(one.remove_if_unused()) << "there is a controller";
  kill_controller(*controller);
  shm::BoardMapping third = shm::BoardMapping::attach(session_);
  EXPECT_FALSE(other.remove_if_unused()) << "there is a third user";
  EXPECT_TRUE(third.remove_if_unused());
  std::filesystem::remove(shm::socket_path(session_));
}

// Prevents: after a clean-up of /dev/shm, new programs get a second controller and a second board,
// and do not hold the old ones.
TEST_F(FoundBoard, NamesThatAreRemovedKeepNobodyFromIt) {
  const auto controller = start_controller();
  const AttachedClient before(session_, 1);
  std::filesystem::remove(board_file());
  std::filesystem::remove(shm::socket_path(session_));
  EXPECT_EQ(launch_controller()->wait(), 1) << "a second controller";
  const std::string refused = "has a controller, pid " + std::to_string(controller->pid());
  EXPECT_NE(log().find(refused), std::string::npos) << log();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(shm::socket_path(session_)); }));
  const std::uint64_t id = before.board().board_id.load();
  {
    const AttachedClient after(session_, 0);
    EXPECT_EQ(after.board().board_id.load(), id);
    EXPECT_NE(after.slot(), before.slot());
    EXPECT_EQ(Look(session_).board().board_id.load(), id);
  }
  EXPECT_TRUE(eventually([&] { return log().find("is gone from /dev/shm") != std::string::npos; }));
  stop(*controller);
  EXPECT_FALSE(std::filesystem::exists(shm::socket_path(session_)));
}

// Prevents: a controller trusts a board that another user has planted.
TEST_F(FoundBoard, AnotherUsersBoardIsRefused) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's file";
  base::Fd(open(board_file().c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_EQ(chown(board_file().c_str(), kNobody, kNobody), 0);
  const std::string said = refused_with();
  EXPECT_NE(said.find("belongs to another user"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::exists(board_file())) << "the board of another user was removed";
  std::filesystem::remove(board_file());
}

// Prevents: a controller trusts a runtime folder that another user has planted. Other tests use
// this user's folder, so the test takes a uid that no user has, whose folder belongs to root.
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
  EXPECT_TRUE(files_of_session(session_).empty()) << "a failed start leaves nothing";
}

// Prevents: a user's file with the name of the socket is deleted.
TEST_F(FoundBoard, AFileWithTheNameOfTheSocketIsKept) {
  base::ensure_runtime_dir();
  base::Fd(open(shm::socket_path(session_).c_str(), O_CREAT | O_RDWR, 0600));
  const std::string said = refused_with();
  EXPECT_NE(said.find("is not a socket"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::exists(shm::socket_path(session_)));
  std::filesystem::remove(shm::socket_path(session_));
}

}  // namespace
}  // namespace sluice::test
