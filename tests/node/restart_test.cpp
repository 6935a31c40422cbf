// Deaths and restarts of the node service.
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "shm/gates.hpp"
#include "tests/node/node_service.hpp"
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
