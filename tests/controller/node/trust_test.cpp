// Which node service a client believes, and which session it chooses.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/node_service.hpp"
#include "shm/messages.hpp"
#include "shm/session.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

using base::NodeService;

class Trust : public testing::Test {
 protected:
  Trust() {
    chmod(folder_.path().c_str(), 0755);
    setenv("SLUICE_NODE_DIR", folder_.path().c_str(), 1);
  }
  ~Trust() override { unsetenv("SLUICE_NODE_DIR"); }

  void listen_there() {
    listener_ = base::Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, folder_.file("node.sock").c_str());
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(listener_.get(), 5), 0);
  }
  [[nodiscard]] static int connect() {
    const base::Fd fd(shm::connect_controller(shm::socket_path("node").c_str()));
    return fd ? 0 : fd.get();
  }

  TempFolder folder_;
  base::Fd listener_;
};

// Prevents: a machine without a node service behaves differently from before.
TEST_F(Trust, WithoutASocketTheSessionIsDefault) {
  EXPECT_EQ(base::find_node_service(), NodeService::kAbsent);
  EXPECT_EQ(base::default_session(), "default");
  static_cast<void>(folder_.write("node.sock", "no socket"));
  EXPECT_EQ(base::find_node_service(), NodeService::kAbsent);
}

TEST_F(Trust, WithASocketTheSessionIsNode) {
  listen_there();
  EXPECT_EQ(base::find_node_service(), NodeService::kPresent);
  EXPECT_EQ(base::default_session(), "node");
  EXPECT_EQ(shm::socket_path("node"), folder_.file("node.sock"));
  EXPECT_EQ(connect(), 0);
}

// Prevents: a program that gets along without the node service cannot be kept from it; an empty
// path leads to an abstract socket, which anybody may have made.
TEST_F(Trust, AnEmptyFolderMeansNoNodeService) {
  listen_there();
  for (const char* none : {"", "relative/folder"}) {
    setenv("SLUICE_NODE_DIR", none, 1);
    EXPECT_EQ(base::default_session(), "default");
    EXPECT_EQ(connect(), -ENOENT);
  }
  unsetenv("SLUICE_NODE_DIR");
  EXPECT_EQ(base::node_folder(), "/run/sluice");
}

// Prevents: a user who fills the queue of the service keeps all other programs out: a program was
// told that the service does not run, and ran ungated.
TEST_F(Trust, AFullQueueIsWaitedFor) {
  listen_there();
  const std::string path = shm::socket_path("node");
  std::vector<base::Fd> queue;
  int last = 0;
  while ((last = shm::connect_controller(path.c_str())) >= 0) queue.emplace_back(last);
  ASSERT_EQ(last, -EAGAIN);
  EXPECT_EQ(shm::connect_patiently(path.c_str(), 20), -EAGAIN) << "but not indefinitely";
  std::thread service([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    base::Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
  });
  EXPECT_TRUE(base::Fd(shm::connect_patiently(path.c_str(), 30'000)));
  service.join();
}

// Prevents: a user replaces the socket in a folder to which he may write, and gets the programs of
// all other users.
TEST_F(Trust, AFolderThatOthersMayWriteToIsNotTrusted) {
  listen_there();
  for (const mode_t mode : {0775, 0757, 01777}) {
    ASSERT_EQ(chmod(folder_.path().c_str(), mode), 0);
    EXPECT_EQ(base::find_node_service(), NodeService::kUntrusted) << mode;
    EXPECT_EQ(base::default_session(), "default");
    EXPECT_EQ(connect(), -EPERM);
  }
}

TEST_F(Trust, ALinkToAFolderIsNotTrusted) {
  listen_there();
  const std::string link = folder_.path().string() + "-link";
  ASSERT_EQ(symlink(folder_.path().c_str(), link.c_str()), 0);
  setenv("SLUICE_NODE_DIR", link.c_str(), 1);
  EXPECT_EQ(base::find_node_service(), NodeService::kUntrusted);
  unlink(link.c_str());
}

// Prevents: the service of a user is that of another user.
TEST_F(Trust, AnotherUsersFolderOrServiceIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's folder";
  listen_there();
  ASSERT_EQ(chown(folder_.path().c_str(), 12345, 12345), 0);
  EXPECT_EQ(base::find_node_service(), NodeService::kUntrusted);
  EXPECT_EQ(connect(), -EPERM) << "root must not trust a user";
  ASSERT_EQ(seteuid(12345), 0);
  const NodeService own_folder = base::find_node_service();
  const int connected = connect();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(own_folder, NodeService::kPresent);
  EXPECT_EQ(connected, -EACCES) << "the socket is root's, of mode 0755";
  ASSERT_EQ(chmod(folder_.file("node.sock").c_str(), 0666), 0);
  ASSERT_EQ(seteuid(12345), 0);
  const int answered = connect();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(answered, -EPERM) << "root listens in a folder of the user";
}

}  // namespace
}  // namespace sluice::test
