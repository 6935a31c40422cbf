// Deaths and restarts of the node service.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/fd.hpp"
#include "shm/gates.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/look.hpp"

namespace sluice::test {
namespace {

class RestartTest : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    start(kPolicy);
    low_ = client_of(kBert, 0);
    high_ = client_of(kAnna, 10);
    ASSERT_TRUE(low_->attached() && high_->attached()) << low_->greeting() << high_->greeting();
    board_id_ = low_->board_id();
  }
  [[nodiscard]] bool adopted() const {
    return ready_line().find("board=adopted") != std::string::npos;
  }

  static constexpr const char* kPolicy = R"({"rules": [{"user": 12345, "max_priority": 10}]})";
  std::unique_ptr<FakeClient> low_;
  std::unique_ptr<FakeClient> high_;
  std::uint64_t board_id_ = 0;
};

// Prevents: the death of the service opens gates, or keeps them closed.
TEST_F(RestartTest, AKilledServiceHarmsNobody) {
  const Look look("node");
  kill_service();
  for (int round = 0; round < 3; ++round) {
    high_->order("begin");
    EXPECT_EQ(look.gate(low_->slot()), shm::bit(high_->slot()));
    high_->order("end");
    EXPECT_EQ(look.gate(low_->slot()), 0U);
  }
}

// Prevents: after a restart, old and new programs have different boards and do not know of each
// other.
TEST_F(RestartTest, ANewServiceAdoptsTheBoardOfItsClients) {
  high_->order("begin");
  kill_service();
  start(kPolicy);
  EXPECT_TRUE(adopted()) << ready_line();
  const auto late = client_of(kBert, 0);
  ASSERT_TRUE(late->attached()) << late->greeting();
  EXPECT_EQ(late->board_id(), board_id_);
  const Look look("node");
  EXPECT_TRUE(eventually([&] { return look.gate(late->slot()) == shm::bit(high_->slot()); }))
      << "the job that was running when the service died";
  EXPECT_TRUE(logs("client attached again: slot " + std::to_string(high_->slot())));
  high_->process().signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return look.state(high_->slot()) == shm::SlotState::kFree; }))
      << "the new service watches the clients of the old one";
}

// Prevents: a service that restarts while its clients are suspended makes a second board.
TEST_F(RestartTest, StoppedClientsAreNotLost) {
  low_->process().stop();
  high_->process().stop();
  kill_service();
  start(kPolicy);
  EXPECT_TRUE(adopted()) << ready_line();
  low_->process().signal(SIGCONT);
  high_->process().signal(SIGCONT);
  EXPECT_TRUE(logs("client attached again: slot " + std::to_string(low_->slot())));
  high_->order("begin");
  EXPECT_EQ(Look("node").gate(low_->slot()), shm::bit(high_->slot()));
}

// Prevents: the capabilities in the unit do not suffice to find the board, and every restart by
// systemd makes a second one.
TEST_F(RestartTest, TheCapabilitiesOfTheUnitSuffice) {
  kill_service();
  const std::string unit = read_file(SLUICE_NODE_UNIT);
  EXPECT_NE(unit.find("\nFileDescriptorStoreMax=1\nNotifyAccess=main\n"), std::string::npos);
  const std::string key = "CapabilityBoundingSet=";
  const std::size_t at = unit.find(key);
  ASSERT_NE(at, std::string::npos);
  std::istringstream names(unit.substr(at + key.size(), unit.find('\n', at) - at - key.size()));
  const std::string mine = read_file("/proc/self/status");
  const auto bounding = std::stoull(mine.substr(mine.find("CapBnd:") + 7), nullptr, 16);
  std::string set = "-all";
  for (std::string name; names >> name;) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    // A container may lack it. The service only needs it against hostile users.
    if (name == "cap_sys_resource" && (bounding >> 24U & 1U) == 0) continue;
    set += ",+" + name.substr(4);
  }
  start(kPolicy, {kSetpriv, "--bounding-set=" + set, "--inh-caps=-all", "--no-new-privs"});
  EXPECT_TRUE(adopted()) << ready_line();
  EXPECT_TRUE(logs("client attached again: slot " + std::to_string(high_->slot())));
}

// Prevents: a slot of the old service counts for nobody, and its user gets too many.
TEST_F(RestartTest, AnAdoptedClientStillCountsForItsUser) {
  kill_service();
  start(R"({"default": {"max_clients": 1}})");
  ASSERT_TRUE(adopted());
  EXPECT_FALSE(client_of(kBert, 0)->attached());
}

// Prevents: after a restart, nobody logs or counts the death of an adopted client that another
// client saw first.
TEST_F(RestartTest, TheDeathOfAnAdoptedClientIsLogged) {
  const auto third = client_of(kAnna, 5);
  ASSERT_TRUE(third->attached());
  kill_service();
  start(kPolicy);
  ASSERT_TRUE(logs("client attached again: slot " + std::to_string(high_->slot())));
  const Look look("node");
  service().stop();
  high_->process().signal(SIGKILL);
  high_->process().wait();
  EXPECT_TRUE(eventually([&] { return look.state(high_->slot()) == shm::SlotState::kDead; }));
  service().signal(SIGCONT);
  EXPECT_TRUE(logs("client died: slot " + std::to_string(high_->slot())));
}

// Prevents: the board of dead clients is used again, with whatever they left on it.
TEST_F(RestartTest, WithoutClientsTheBoardIsNew) {
  for (auto* client : {&low_, &high_}) {
    (*client)->process().signal(SIGKILL);
    (*client)->process().wait();
  }
  kill_service();
  start(kPolicy);
  EXPECT_FALSE(adopted()) << ready_line();
  EXPECT_NE(client_of(kBert, 0)->board_id(), board_id_);
}

// Prevents: while `systemctl restart` runs, new programs choose the session `default`, where nobody
// holds them and they hold nobody.
TEST_F(RestartTest, TheSocketStaysWhileClientsLive) {
  service().signal(SIGTERM);
  EXPECT_EQ(service().wait(kProgramPatience), 0);
  EXPECT_TRUE(std::filesystem::exists(socket()));
  start(kPolicy);
  EXPECT_TRUE(adopted());
  for (auto* client : {&low_, &high_}) {
    (*client)->process().signal(SIGKILL);
    (*client)->process().wait();
  }
  EXPECT_TRUE(eventually([] { return Look("node").board().used.load() == 0; }));
  service().signal(SIGTERM);
  EXPECT_EQ(service().wait(kProgramPatience), 0);
  EXPECT_FALSE(std::filesystem::exists(socket())) << "a stopped service without clients";
}

/// What a service manager does with FDSTORE.
class ServiceManager {
 public:
  explicit ServiceManager(const std::string& name) : name_(name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (name.front() == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  }
  /// A program that becomes the service with the variable of the protocol.
  [[nodiscard]] std::vector<std::string> first_run() const {
    return {"/usr/bin/env", "NOTIFY_SOCKET=" + name_};
  }
  /// The same, with the descriptor that the first run gave.
  [[nodiscard]] std::vector<std::string> next_run() const {
    // Programs of the tests inherit no other descriptor than the three standard ones.
    const std::string kept =
        "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(kept_.get());
    return {"/bin/sh", "-c", "NOTIFY_SOCKET=" + name_ + " exec \"$@\" 3<>" + kept, "sh"};
  }
  /// The next message; takes the descriptor that comes with it.
  std::string receive() {
    std::array<char, 256> text{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    const cmsghdr* const file = CMSG_FIRSTHDR(&message);
    if (size > 0 && file != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(file), sizeof(fd));
      kept_ = base::Fd(fd);
    }
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }
  [[nodiscard]] bool has_one() const { return static_cast<bool>(kept_); }
  void forget() { kept_.reset(); }

 private:
  std::string name_;
  base::Fd socket_{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  base::Fd kept_;
};

class KeptBoard : public RestartTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    if (IsSkipped()) return;
    manager_ = std::make_unique<ServiceManager>(
        GetParam() ? "@sluice-test-" + std::to_string(getpid()) : parent_.file("notify"));
    kill_service();
    start(kPolicy, manager_->first_run());
    ASSERT_TRUE(adopted()) << ready_line();
    EXPECT_EQ(manager_->receive(), "FDSTOREREMOVE=1\nFDNAME=board");
    EXPECT_EQ(manager_->receive(), "FDSTORE=1\nFDNAME=board");
    ASSERT_TRUE(manager_->has_one());
    kill_service();
  }
  std::unique_ptr<ServiceManager> manager_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, KeptBoard, testing::Bool());

// Prevents: programs that closed all their files, as daemons do, and new ones have two boards after
// a restart of the service.
TEST_P(KeptBoard, ServesProgramsThatHaveClosedTheirFiles) {
  for (auto* client : {&low_, &high_}) (*client)->order("close_files");
  start(kPolicy, manager_->next_run());
  EXPECT_TRUE(adopted()) << ready_line();
  EXPECT_TRUE(logs("client attached again: slot " + std::to_string(high_->slot())));
  const auto late = client_of(kBert, 0);
  ASSERT_TRUE(late->attached()) << late->greeting();
  EXPECT_EQ(late->board_id(), board_id_);
  EXPECT_EQ(manager_->receive(), "FDSTOREREMOVE=1\nFDNAME=board") << "the next run needs it again";
}

// Prevents: the test above passes although the service manager keeps nothing.
TEST_P(KeptBoard, IsAllThatIsLeftOfTheBoardThen) {
  for (auto* client : {&low_, &high_}) (*client)->order("close_files");
  manager_->forget();
  start(kPolicy);
  EXPECT_FALSE(adopted()) << ready_line();
}

// Prevents: the board of dead clients is used again, with whatever they left on it.
TEST_P(KeptBoard, IsNotUsedWhenItsProgramsHaveEnded) {
  for (auto* client : {&low_, &high_}) {
    (*client)->process().signal(SIGKILL);
    (*client)->process().wait();
  }
  start(kPolicy, manager_->next_run());
  EXPECT_FALSE(adopted()) << ready_line();
}

// Prevents: two services give out the slots of two boards.
TEST_F(RestartTest, ASecondServiceIsRefusedByPid) {
  Process second({SLUICE_NODE_PROGRAM});
  const base::Captured said = second.finish();
  EXPECT_EQ(second.wait(), 1);
  EXPECT_NE(said.err.find("a node service runs already, pid " + std::to_string(service().pid())),
            std::string::npos)
      << said.err;
  EXPECT_TRUE(client_of(kBert, 0)->attached()) << "the first one was disturbed";
}

// Prevents: a service serves from a folder in which another user can replace the socket.
TEST_F(RestartTest, AFolderOfOthersIsRefused) {
  const TempFolder open;
  chmod(open.path().c_str(), 0777);
  Process other({SLUICE_NODE_PROGRAM},
                {.environment = {"SLUICE_NODE_DIR=" + open.path().string()}});
  const base::Captured said = other.finish();
  EXPECT_EQ(other.wait(), 1);
  EXPECT_NE(said.err.find("is not a folder that only this user can write to"), std::string::npos)
      << said.err;
}

// Prevents: a user renames a folder on the way to that of the service while it starts, and root
// makes files and changes modes elsewhere.
TEST_F(RestartTest, AFolderInsideOneOfOthersIsRefused) {
  const TempFolder open;
  const std::string inside = open.path().string() + "/node";
  const std::string link = parent_.file("link");
  ASSERT_EQ(symlink(open.path().c_str(), link.c_str()), 0);
  const auto refuses = [](const std::string& folder) {
    Process other({SLUICE_NODE_PROGRAM}, {.environment = {"SLUICE_NODE_DIR=" + folder}});
    const base::Captured said = other.finish();
    EXPECT_EQ(other.wait(), 1);
    EXPECT_NE(said.err.find("another user can replace " + folder.substr(0, 5)), std::string::npos)
        << said.err;
  };
  chmod(open.path().c_str(), 0777);
  refuses(inside);
  refuses(link + "/node");
  chmod(open.path().c_str(), 0755);
  ASSERT_EQ(chown(open.path().c_str(), kBert, kBert), 0);
  refuses(inside);
  EXPECT_FALSE(std::filesystem::exists(inside));
}

// Prevents: a full /run keeps the service from the board of running programs.
TEST_F(RestartTest, AdoptionNeedsNoNewRecord) {
  kill_service();
  std::filesystem::create_directory(folder() + "/board.new");  // so no record can be written
  start(kPolicy);
  EXPECT_TRUE(adopted()) << ready_line();
}

}  // namespace
}  // namespace sluice::test
