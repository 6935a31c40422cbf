#include "shm/messages.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::shm {
namespace {

/// A listening socket with a backlog of one. The test decides what the server sends.
class Messages : public testing::Test {
 protected:
  void SetUp() override {
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_GE(listener, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(path.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.c_str(), path.size());
    ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(listener, 0), 0);
  }
  void TearDown() override { close(listener); }

  /// Sends a request to a server that replies with `size` bytes, or hangs up if `size` is 0.
  int ask_server_that_sends(std::size_t size) {
    std::thread server([this, size] {
      const int peer = accept(listener, nullptr, nullptr);
      Request request;
      EXPECT_EQ(recv(peer, &request, sizeof(request), 0), static_cast<ssize_t>(sizeof(request)));
      std::vector<char> answer(size, '\x1b');
      if (size != 0) {
        EXPECT_EQ(send(peer, answer.data(), size, 0), static_cast<ssize_t>(size));
      }
      close(peer);
    });
    const int fd = connect_controller(path.c_str());
    const int result = ask(fd, Request{}, reply, 10'000);
    close(fd);
    server.join();
    return result;
  }

  const test::TempFolder folder;
  const std::string path = folder.file("s.sock");
  int listener = -1;
  Reply reply;
};

TEST_F(Messages, ReplyArrives) {
  EXPECT_EQ(ask_server_that_sends(sizeof(Reply)), 0);
  EXPECT_EQ(reply.text.back(), '\0') << "the text of another process is not terminated";
  EXPECT_EQ(reply.text.front(), '?') << "control characters reach the terminal";
}

// A reply of a controller from another build must not be mistaken for a Reply.
TEST_F(Messages, WrongSizeIsRefused) {
  EXPECT_EQ(ask_server_that_sends(sizeof(Reply) - 1), -EPIPE);
  EXPECT_EQ(ask_server_that_sends(sizeof(Reply) + 1), -EPIPE);
  EXPECT_EQ(ask_server_that_sends(0), -EPIPE);
}

// A stopped controller must not block the start of a program.
TEST_F(Messages, StoppedPeerTimesOut) {
  const int fd = connect_controller(path.c_str());
  ASSERT_GE(fd, 0);
  const std::uint64_t start = base::monotonic_ns();
  EXPECT_EQ(ask(fd, Request{}, reply, 20), -ETIMEDOUT);
  EXPECT_GE(base::monotonic_ns() - start, 19'000'000U);
  close(fd);
}

TEST_F(Messages, FullBacklogOfAStoppedPeerDoesNotBlock) {
  std::vector<int> connected;
  int last = 0;
  for (int i = 0; i < 16 && last >= 0; ++i) {
    last = connect_controller(path.c_str());
    if (last >= 0) connected.push_back(last);
  }
  EXPECT_EQ(last, -EAGAIN);
  for (const int fd : connected) close(fd);
}

// Attach runs on the program's own threads, and their signals belong to the program.
TEST_F(Messages, SignalDoesNotEndTheWait) {
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  const int fd = connect_controller(path.c_str());
  ASSERT_GE(fd, 0);
  const int peer = accept(listener, nullptr, nullptr);
  const pthread_t asking = pthread_self();
  std::thread server([&] {
    for (int i = 0; i < 20; ++i) {
      pthread_kill(asking, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const Reply answer;
    EXPECT_EQ(send(peer, &answer, sizeof(answer), 0), static_cast<ssize_t>(sizeof(answer)));
  });
  EXPECT_EQ(ask(fd, Request{}, reply, 10'000), 0);
  server.join();
  close(peer);
  close(fd);
  sigaction(SIGUSR1, &old, nullptr);
}

/// The number that the next opened descriptor gets.
int next_descriptor() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  close(fd);
  return fd;
}

// A client without a controller tries ten times a second for as long as it runs.
TEST_F(Messages, FailedConnectLeavesNoDescriptor) {
  const int before = next_descriptor();
  EXPECT_EQ(connect_controller((folder.file("none.sock")).c_str()), -ENOENT);
  EXPECT_EQ(next_descriptor(), before);
}

TEST_F(Messages, MissingSocketIsReported) {
  EXPECT_EQ(connect_controller((folder.file("none.sock")).c_str()), -ENOENT);
  EXPECT_EQ(connect_controller(std::string(200, 'a').c_str()), -ENAMETOOLONG);
}

TEST_F(Messages, SocketOfADeadControllerIsRefused) {
  close(listener);
  listener = -1;
  EXPECT_EQ(connect_controller(path.c_str()), -ECONNREFUSED);
}

// If the runtime folder is in /tmp, another user may have created it first.
TEST_F(Messages, SocketOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  close(listener);
  unlink(path.c_str());
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  ASSERT_EQ(seteuid(12345), 0);
  SetUp();
  ASSERT_EQ(seteuid(0), 0);
  const int before = next_descriptor();
  EXPECT_EQ(connect_controller(path.c_str()), -EPERM);
  EXPECT_EQ(next_descriptor(), before);
}

TEST_F(Messages, ConnectionIsNotInherited) {
  const int fd = connect_controller(path.c_str());
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  close(fd);
}

}  // namespace
}  // namespace sluice::shm
