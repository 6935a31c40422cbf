#include "shm/mapping.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/forked_child.hpp"
#include "tests/support/session.hpp"
#include "tests/support/signal.hpp"
#include "tests/support/small_shm.hpp"

namespace sluice::shm {
namespace {

using test::ForkedChild;
using test::Session;
using test::Signal;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const BoardError& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A process that uses the board of `session` from attached() until it is killed. Create it before
/// the test maps a board: a forked child would inherit the mapping.
class Client {
 public:
  explicit Client(const Session& session)
      : child_([&] {
          if (!go_.wait()) return 1;
          const BoardMapping mapping = BoardMapping::attach(session.name());
          attached_.raise();
          for (;;) pause();
          return 0;
        }) {}
  [[nodiscard]] bool attached() const {
    go_.raise();
    return attached_.wait();
  }
  void kill() {
    child_.signal(SIGKILL);
    child_.wait();
  }

 private:
  Signal go_;
  Signal attached_;
  ForkedChild child_;
};

TEST(BoardMapping, NewBoardIsPrivate) {
  const Session session;
  const auto made = BoardMapping::adopt_or_create(session.name());
  EXPECT_FALSE(made.adopted);
  const Board& board = made.mapping.board();
  EXPECT_EQ(board.magic.load(), kBoardMagic);
  EXPECT_EQ(board.layout_version.load(), kLayoutVersion);
  EXPECT_NE(board.board_id.load(), 0U);
  EXPECT_EQ(board.used.load(), 0U);
  struct stat found {};
  ASSERT_EQ(stat(session.board_file().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  EXPECT_EQ(static_cast<std::size_t>(found.st_size), sizeof(Board));
}

TEST(BoardMapping, ProcessesSeeTheSameBoard) {
  const Session session;
  const auto made = BoardMapping::adopt_or_create(session.name());
  made.mapping.board().used.store(5);
  ForkedChild child([&] {
    const BoardMapping mapping = BoardMapping::attach(session.name());
    mapping.board().slots[3].gate.store(7);
    return mapping.board().used.load() == 5 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(made.mapping.board().slots[3].gate.load(), 7U);
}

TEST(BoardMapping, MissingBoardIsNoBoard) {
  const Session session;
  EXPECT_THROW(BoardMapping::attach(session.name()), NoBoard);
  EXPECT_THROW(BoardMapping::inspect(session.name()), NoBoard);
}

// With two controllers on one board, two clients could get the same slot.
TEST(BoardMapping, SecondControllerIsRefusedByPid) {
  const Session session;
  const auto first = BoardMapping::adopt_or_create(session.name());
  first.mapping.board().controller_pid.store(static_cast<std::uint32_t>(getpid()));
  const std::string error = error_of([&] { BoardMapping::adopt_or_create(session.name()); });
  EXPECT_TRUE(contains(error, "pid " + std::to_string(getpid()))) << error;
  EXPECT_TRUE(contains(error, session.name())) << error;
}

// Pending stream waits and captured graphs of a living client contain addresses of its board.
TEST(BoardMapping, BoardOfALivingClientIsAdopted) {
  const Session session;
  Client client(session);
  auto first =
      std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
  const std::uint64_t id = first->mapping.board().board_id.load();
  ASSERT_TRUE(client.attached());
  first.reset();
  const auto second = BoardMapping::adopt_or_create(session.name());
  EXPECT_TRUE(second.adopted);
  EXPECT_EQ(second.mapping.board().board_id.load(), id);
}

TEST(BoardMapping, BoardOfADeadClientIsReplaced) {
  const Session session;
  Client client(session);
  auto first =
      std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
  const std::uint64_t id = first->mapping.board().board_id.load();
  ASSERT_TRUE(client.attached());
  first.reset();
  client.kill();
  const auto second = BoardMapping::adopt_or_create(session.name());
  EXPECT_FALSE(second.adopted);
  EXPECT_NE(second.mapping.board().board_id.load(), id);
}

// A forked child of a client must not keep the board in use after its parent has left.
TEST(BoardMapping, ForkedChildDoesNotCount) {
  for (const bool abandons : {true, false}) {
    const Session session;
    auto controller =
        std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
    auto client = std::make_unique<BoardMapping>(BoardMapping::attach(session.name()));
    const Signal ready;
    controller.reset();
    const ForkedChild child([&] {
      if (abandons) client->abandon_in_child();
      ready.raise();
      for (;;) pause();
      return 0;
    });
    ASSERT_TRUE(ready.wait());
    client.reset();
    EXPECT_EQ(BoardMapping::adopt_or_create(session.name()).adopted, !abandons);
  }
}

TEST(BoardMapping, OtherLayoutIsRefusedWhileItsClientsLive) {
  const Session session;
  Client client(session);
  auto made =
      std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
  ASSERT_TRUE(client.attached());
  made->mapping.board().layout_version.store(kLayoutVersion + 1);
  made.reset();
  const std::string version = "layout version " + std::to_string(kLayoutVersion + 1);
  for (const auto& use : {+[](const std::string& name) { BoardMapping::attach(name); },
                          +[](const std::string& name) { BoardMapping::inspect(name); },
                          +[](const std::string& name) { BoardMapping::adopt_or_create(name); }}) {
    const std::string error = error_of([&] { use(session.name()); });
    EXPECT_TRUE(contains(error, version)) << error;
  }
  client.kill();
  EXPECT_FALSE(BoardMapping::adopt_or_create(session.name()).adopted);
}

TEST(BoardMapping, TruncatedBoardIsRefusedThenReplaced) {
  const Session session;
  const int fd = open(session.board_file().c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 100), 0);
  close(fd);
  const std::string error = error_of([&] { BoardMapping::attach(session.name()); });
  EXPECT_TRUE(contains(error, "truncated (100 of")) << error;
  const auto made = BoardMapping::adopt_or_create(session.name());
  EXPECT_FALSE(made.adopted);
  EXPECT_NO_THROW(BoardMapping::attach(session.name()));
}

TEST(BoardMapping, OtherObjectUnderOurNameIsRefused) {
  const Session session;
  const int fd = open(session.board_file().c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, sizeof(Board)), 0);
  close(fd);
  const std::string error = error_of([&] { BoardMapping::attach(session.name()); });
  EXPECT_TRUE(contains(error, "is not a board")) << error;
}

// Prevents: a controller that dies of SIGBUS, whose only words are "it ended without a message".
TEST(BoardMapping, AFullShmIsSaidAndLeavesNothing) {
  constexpr int kSkipped = 77;
  const Session session;
  for (const std::size_t room : {std::size_t{4096}, sizeof(Board) / 2}) {
    ForkedChild child([&] {
      if (!test::enter_small_shm(room)) return kSkipped;
      const std::string error = error_of([&] { BoardMapping::adopt_or_create(session.name()); });
      if (!contains(error, "no space left in /dev/shm")) return 1;
      return session.has_board() ? 2 : 0;
    });
    const int result = child.wait();
    if (result == kSkipped) GTEST_SKIP() << "may not mount a /dev/shm";
    EXPECT_EQ(result, 0);
  }
}

// Prevents: after `rm -rf /dev/shm/*` the next controller makes a second board, and programs of the
// two do not see each other.
TEST(BoardMapping, ABoardThatLostItsNameIsFoundByTheNextController) {
  const Session session;
  Client client(session);
  auto first =
      std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
  const std::uint64_t id = first->mapping.board().board_id.load();
  first->mapping.board().controller_pid.store(static_cast<std::uint32_t>(getpid()));
  ASSERT_TRUE(client.attached());
  std::filesystem::remove(session.board_file());
  EXPECT_EQ(first->mapping.name(), BoardMapping::Name::kGone);
  const std::string error = error_of([&] { BoardMapping::adopt_or_create(session.name()); });
  EXPECT_TRUE(contains(error, "pid " + std::to_string(getpid()))) << error;
  first.reset();
  auto second =
      std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
  EXPECT_TRUE(second->adopted);
  EXPECT_EQ(second->mapping.board().board_id.load(), id);
  EXPECT_FALSE(session.has_board());
  second.reset();
  client.kill();
  const auto third = BoardMapping::adopt_or_create(session.name());
  EXPECT_FALSE(third.adopted) << "nobody uses it any more";
  EXPECT_NE(third.mapping.board().board_id.load(), id);
}

void expect_refused(const Session& session) {
  for (const auto& use : {+[](const std::string& name) { BoardMapping::attach(name); },
                          +[](const std::string& name) { BoardMapping::adopt_or_create(name); }}) {
    const std::string error = error_of([&] { use(session.name()); });
    EXPECT_TRUE(contains(error, "another user")) << error;
  }
  EXPECT_TRUE(session.has_board()) << "another user's object was removed";
}

TEST(BoardMapping, BoardOpenToOthersIsRefused) {
  const Session session;
  { const auto made = BoardMapping::adopt_or_create(session.name()); }
  ASSERT_EQ(chmod(session.board_file().c_str(), 0666), 0);
  expect_refused(session);
}

// Prevents: `sluice status` waits for good, because another user has put a pipe in our place.
TEST(BoardMapping, APipeUnderOurNameIsRefused) {
  const Session session;
  ASSERT_EQ(mkfifo(session.board_file().c_str(), 0600), 0);
  ForkedChild looking(
      [&] { return error_of([&] { BoardMapping::inspect(session.name()); }).empty() ? 1 : 0; });
  EXPECT_EQ(looking.wait(), 0);
  std::filesystem::remove(session.board_file());
}

TEST(BoardMapping, AnotherUsersBoardIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's board";
  const Session session;
  { const auto made = BoardMapping::adopt_or_create(session.name()); }
  ASSERT_EQ(chown(session.board_file().c_str(), 12345, 12345), 0);
  expect_refused(session);
}

TEST(BoardMapping, LastUserRemoves) {
  const Session session;
  Client second(session);
  auto controller =
      std::make_unique<BoardMapping::Adoption>(BoardMapping::adopt_or_create(session.name()));
  BoardMapping first = BoardMapping::attach(session.name());
  EXPECT_FALSE(first.remove_if_unused()) << "removed under a controller";
  ASSERT_TRUE(second.attached());
  controller.reset();
  EXPECT_FALSE(first.remove_if_unused()) << "removed under another client";
  second.kill();
  const std::string socket = session.board_file() + ".sock";
  std::ofstream(socket) << "";
  EXPECT_TRUE(test::eventually([&] { return first.remove_if_unused(socket); }));
  EXPECT_FALSE(session.has_board());
  EXPECT_NE(access(socket.c_str(), F_OK), 0) << "the socket outlived the board";
  first.board().used.store(1);  // the mapping is still valid
}

// The board of a later controller has the same name, and clients of its own.
TEST(BoardMapping, LastUserOfAnOldBoardLeavesTheNewOne) {
  const Session session;
  const std::string aside = session.board_file() + ".aside";
  BoardMapping old_client;
  {
    const auto old = BoardMapping::adopt_or_create(session.name());
    old_client = BoardMapping::attach(session.name());
    std::filesystem::rename(session.board_file(), aside);
  }
  const auto made = BoardMapping::adopt_or_create(session.name());
  EXPECT_EQ(old_client.name(), BoardMapping::Name::kAnothers);
  EXPECT_FALSE(old_client.remove_if_unused());
  EXPECT_TRUE(session.has_board());
  std::filesystem::remove(aside);
}

}  // namespace
}  // namespace sluice::shm
