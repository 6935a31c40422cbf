// Users who want to harm the node service or each other.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <vector>

#include "base/child.hpp"
#include "base/node_service.hpp"
#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/messages.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/change_request.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

class Hostile : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    start(
        R"({"rules": [{"user": 12345, "max_priority": 10}, {"user": 12347, "max_clients": 63}]})");
  }
};

// Prevents: descriptors that come with messages fill the service's table of open files.
TEST_F(Hostile, DescriptorsInMessagesAreClosed) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const base::Fd read_end(ends[0]);
  const base::Fd write_end(ends[1]);
  const base::Fd memory(memfd_create("sluice-node-board", MFD_CLOEXEC));
  const base::Fd connection = connect_to("node");
  shm::Request lease;
  lease.kind = shm::RequestKind::kLease;
  ask_controller(connection.get(), lease);
  const std::size_t before = open_files(service().pid());
  for (int round = 0; round < 500; ++round) {
    ASSERT_TRUE(send_with(connection.get(), &lease, sizeof(lease),
                          {write_end.get(), memory.get(), write_end.get()}));
    pollfd ready{connection.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, static_cast<int>(kPatience.count())), 1);
    shm::Reply reply;
    ASSERT_EQ(recv(connection.get(), &reply, sizeof(reply), 0),
              static_cast<ssize_t>(sizeof(reply)));
  }
  EXPECT_LE(open_files(service().pid()), before + 1) << "a heartbeat may open a file";
}

// Prevents: one user's connections keep all other users out.
TEST_F(Hostile, ConnectionsOfOneUserLeaveRoomForOthers) {
  constexpr int kTried = 1500;  // more than all users together may have
  const auto client = client_of(kBert, 0);
  ASSERT_TRUE(client->attached());
  const base::Fd other = connect_to("node");  // of root, without a slot
  shm::Request asked;
  asked.kind = shm::RequestKind::kLease;
  ask_controller(other.get(), asked);
  base::Pipe full;
  base::Pipe measured;
  const pid_t hog = fork();
  if (hog == 0) {
    rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || setgid(kBert) != 0 || setuid(kBert) != 0) _exit(1);
    shm::Request lease;
    lease.kind = shm::RequestKind::kLease;
    for (int i = 0; i < kTried; ++i) {
      shm::Reply reply;
      const int fd = shm::connect_controller(base::node_socket().c_str());
      if (fd >= 0) static_cast<void>(shm::ask(fd, lease, reply, 10'000));
    }
    char byte = 0;
    if (write(full.write.get(), &byte, 1) != 1) _exit(3);
    if (read(measured.read.get(), &byte, 1) != 1) _exit(3);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(full.read.get(), &byte, 1), 1);
  EXPECT_LE(open_files(service().pid()), 64U * 2 + 40) << "64 connections of a user, not more";
  EXPECT_TRUE(client_of(kAnna, 0)->attached());
  EXPECT_EQ(Look("node").state(client->slot()), shm::SlotState::kLive);
  EXPECT_EQ(ask_controller(other.get(), asked).status, shm::ReplyStatus::kOk)
      << "the connection of another user was dropped";
  ASSERT_EQ(write(measured.write.get(), &byte, 1), 1);
  waitpid(hog, nullptr, 0);
}

// Prevents: a user who invents devices leaves no room on the board for a device of others.
TEST_F(Hostile, DevicesOfOneUserLeaveRoomForOthers) {
  constexpr int kInvented = shm::kMaxDevices + 1;
  base::Pipe taken;
  base::Pipe measured;
  const pid_t hog = fork();
  if (hog == 0) {
    if (setgid(kCarl) != 0 || setuid(kCarl) != 0) _exit(1);
    char granted = 0;
    for (int device = 1; device <= kInvented; ++device) {
      shm::Reply reply;
      const int fd = shm::connect_controller(base::node_socket().c_str());
      if (fd < 0 || shm::ask(fd, good_request(0, device), reply, 10'000) != 0) _exit(2);
      granted = static_cast<char>(granted + (reply.status == shm::ReplyStatus::kOk ? 1 : 0));
    }
    if (write(taken.write.get(), &granted, 1) != 1) _exit(3);
    char byte = 0;
    if (read(measured.read.get(), &byte, 1) != 1) _exit(3);
    _exit(0);
  }
  char granted = 0;
  ASSERT_EQ(read(taken.read.get(), &granted, 1), 1);
  EXPECT_EQ(granted, shm::kMaxDevices / 2);
  EXPECT_TRUE(logs("user uid 12347 has 16 devices, the most for a user"));
  const auto other = client_of(kAnna, 0, 100);
  EXPECT_TRUE(other->attached()) << other->greeting();
  const auto shared = client_of(kAnna, 0, 1);
  EXPECT_TRUE(shared->attached()) << shared->greeting();
  const auto more = client_of(kCarl, 0, 101);
  EXPECT_TRUE(more->attached()) << "a device that others use too is not this user's alone";
  ASSERT_EQ(write(measured.write.get(), &granted, 1), 1);
  waitpid(hog, nullptr, 0);
}

// Prevents: connections of ended processes, which other processes keep open, count as clients and
// fill the service until nobody can connect.
TEST_F(Hostile, ConnectionsOfEndedProcessesGiveWay) {
  constexpr int kTried = 80;  // more than a user may have
  base::Pipe full;
  base::Pipe measured;
  const pid_t hog = fork();
  if (hog == 0) {
    if (setgid(kBert) != 0 || setuid(kBert) != 0) _exit(1);
    for (int i = 0; i < kTried; ++i) {
      // The child shares our table of open files, so its connection stays open when it has ended.
      const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
      if (child == 0) {
        const int fd = shm::connect_controller(base::node_socket().c_str());
        shm::Reply reply;
        // Until the slot of an earlier child is free again.
        while (fd >= 0 && shm::ask(fd, good_request(), reply, 10'000) == 0 &&
               reply.status == shm::ReplyStatus::kSessionFull) {
          usleep(1000);
        }
        _exit(0);
      }
      waitpid(child, nullptr, 0);
    }
    char byte = 0;
    if (write(full.write.get(), &byte, 1) != 1) _exit(3);
    if (read(measured.read.get(), &byte, 1) != 1) _exit(3);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(full.read.get(), &byte, 1), 1);
  EXPECT_TRUE(logs("dropped the connection of pid")) << "there were too many";
  EXPECT_LE(count_of(log(), "warning: dropped the connection"), 6U) << "one in 10 s is a warning";
  EXPECT_TRUE(eventually([] { return client_of(kBert, 0)->attached(); }));
  ASSERT_EQ(write(measured.write.get(), &byte, 1), 1);
  waitpid(hog, nullptr, 0);
}

// Prevents: a client kills all others by shortening the board; or changes it through a descriptor
// for reading.
TEST_F(Hostile, NobodyCanShortenTheBoardAndAReaderCannotWrite) {
  const int result = run_as(kAnna, [] {
    const base::Fd connection(shm::connect_controller(base::node_socket().c_str()));
    shm::Reply reply;
    const base::Fd reader(
        shm::ask_for_board(connection.get(), shm::RequestKind::kInspect, reply, 10'000));
    if (!reader) return 1;
    const base::Fd second(shm::connect_controller(base::node_socket().c_str()));
    const base::Fd writer(
        shm::ask_for_board(second.get(), shm::RequestKind::kBoard, reply, 10'000));
    if (!writer) return 2;
    if (ftruncate(writer.get(), 0) == 0) return 3;
    if (ftruncate(writer.get(), 1 << 30) == 0) return 4;
    const auto map = [](const base::Fd& file) {
      return mmap(nullptr, sizeof(shm::Board), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    };
    if (map(reader) != MAP_FAILED) return 5;
    const std::string path = "/proc/self/fd/" + std::to_string(reader.get());
    if (open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0) return 6;
    if (fchmod(writer.get(), 0666) == 0) return 7;
    return map(writer) == MAP_FAILED ? 8 : 0;
  });
  EXPECT_EQ(result, 0);
}

/// What a process gets that asks for the board over a connection whose maker has ended: 0 is
/// nothing, 1 a board for reading, 2 a board that it can map for writing.
int board_of_an_orphan(shm::RequestKind kind) {
  base::Pipe ended;
  base::Pipe result;
  const pid_t parent = fork();
  if (parent == 0) {
    const int fd = shm::connect_controller(base::node_socket().c_str());
    if (fork() != 0) _exit(0);
    char byte = 0;
    if (read(ended.read.get(), &byte, 1) != 1) _exit(3);
    shm::Reply reply;
    const int board = shm::ask_for_board(fd, kind, reply, 10'000);
    const void* const mapped =
        mmap(nullptr, sizeof(shm::Board), PROT_READ | PROT_WRITE, MAP_SHARED, board, 0);
    const bool writes = board >= 0 && mapped != MAP_FAILED;
    byte = static_cast<char>(writes ? 2 : board >= 0 ? 1 : 0);
    if (write(result.write.get(), &byte, 1) != 1) _exit(3);
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
  char byte = 9;
  if (write(ended.write.get(), &byte, 1) != 1 || read(result.read.get(), &byte, 1) != 1) return 9;
  return byte;
}

// Prevents: a program whose cgroup may hold nobody lets the process end that connected, and gets
// the board for writing because an ended process has no cgroup.
TEST_F(UsersTest, NobodyGetsTheBoardOverTheConnectionOfAnEndedProcess) {
  start(R"({"default": {"max_priority": 10}, "rules": [{"cgroup": "*", "max_priority": 0}]})");
  const auto as_anna = [](shm::RequestKind kind) {
    return run_as(kAnna, [kind] { return board_of_an_orphan(kind); });
  };
  EXPECT_EQ(as_anna(shm::RequestKind::kBoard), 0);
  EXPECT_EQ(as_anna(shm::RequestKind::kInspect), 0);
  EXPECT_TRUE(logs("the process that connected has ended"));
}

// Prevents: a peer that asks for the board again and again, and does not read, keeps so many
// descriptors in flight that nobody else gets one.
TEST_F(Hostile, AConnectionGetsTheBoardOnce) {
  const base::Fd connection = connect_to("node");
  shm::Reply reply;
  const base::Fd board(
      shm::ask_for_board(connection.get(), shm::RequestKind::kInspect, reply, 10'000));
  EXPECT_TRUE(board);
  EXPECT_EQ(shm::ask_for_board(connection.get(), shm::RequestKind::kInspect, reply, 10'000),
            -EACCES);
  EXPECT_EQ(reply.status, shm::ReplyStatus::kBadRequest);
}

/// Sends a request and receives its reply. Returns whether a descriptor came with it.
bool reply_has_descriptor(int connection, const shm::Request& request) {
  EXPECT_EQ(send(connection, &request, sizeof(request), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(request)));
  pollfd ready{connection, POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, static_cast<int>(kPatience.count())), 1);
  shm::Reply reply;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec bytes{&reply, sizeof(reply)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_EQ(recvmsg(connection, &message, 0), static_cast<ssize_t>(sizeof(reply)));
  const cmsghdr* const part = CMSG_FIRSTHDR(&message);
  if (part == nullptr) return false;
  int received = -1;
  std::memcpy(&received, CMSG_DATA(part), sizeof(received));
  const base::Fd closes(received);
  return true;
}

// Prevents: the board goes along with each later reply of its connection, to a peer that never
// closes it.
TEST_F(Hostile, TheBoardComesWithOneReplyOnly) {
  const base::Fd connection = connect_to("node");
  shm::Request request;
  request.kind = shm::RequestKind::kInspect;
  EXPECT_TRUE(reply_has_descriptor(connection.get(), request));
  EXPECT_FALSE(reply_has_descriptor(connection.get(), request)) << "refused";
  EXPECT_FALSE(reply_has_descriptor(connection.get(), good_request())) << "granted";
}

// Prevents: a user takes over the slot of another user's program.
TEST_F(Hostile, NobodyAttachesAgainToTheSlotOfAnother) {
  const auto victim = client_of(kBert, 0);
  ASSERT_TRUE(victim->attached());
  shm::Request request = good_request();
  request.slot = victim->slot();
  request.generation = victim->generation();
  request.board_id = victim->board_id();
  const base::Fd connection = connect_to("node");
  EXPECT_EQ(ask_controller(connection.get(), request).status, shm::ReplyStatus::kOtherBoard);
}

// Prevents: a user gives another user's program, or his own, a priority that he may not ask for.
TEST_F(Hostile, ChangesObeyOwnerAndCeiling) {
  const auto of_bert = client_of(kBert, 0);
  const auto of_anna = client_of(kAnna, 0);
  ASSERT_TRUE(of_bert->attached() && of_anna->attached());
  const auto change = [](const FakeClient& client, std::uint32_t priority,
                         std::uint32_t weight = shm::kKeepWeight,
                         std::uint16_t give = shm::kKeepGive) {
    return [&client, priority, weight, give] {
      shm::Request request = change_of({client.slot(), client.generation()}, client.board_id());
      request.priority = priority;
      request.weight = weight;
      request.give = give;
      const base::Fd connection = connect_to("node");
      return static_cast<int>(ask_controller(connection.get(), request).status);
    };
  };
  constexpr int kNo = static_cast<int>(shm::ReplyStatus::kNotAllowed);
  EXPECT_EQ(run_as(kBert, change(*of_anna, 0)), kNo) << "another user's client";
  EXPECT_EQ(run_as(kBert, change(*of_bert, 1)), kNo) << "above the ceiling";
  EXPECT_EQ(run_as(kBert, change(*of_bert, 0)), 0);
  EXPECT_EQ(run_as(kBert, change(*of_bert, shm::kKeepPriority)), 0);
  EXPECT_EQ(run_as(kBert, change(*of_bert, shm::kKeepPriority, 2)), kNo) << "above the site's 1";
  EXPECT_EQ(run_as(kBert, change(*of_bert, shm::kKeepPriority, 1)), 0);
  constexpr std::uint32_t kSame = shm::kKeepPriority;
  EXPECT_EQ(run_as(kAnna, change(*of_anna, kSame, 1, shm::say_give(0))), kNo)
      << "below what the site wants";
  EXPECT_EQ(run_as(kAnna, change(*of_anna, kSame, 1, shm::say_give(shm::kDefaultGive))), 0);
  EXPECT_EQ(change(*of_anna, 200, 1000, shm::say_give(0))(), 0) << "root may";
}

}  // namespace
}  // namespace sluice::test
