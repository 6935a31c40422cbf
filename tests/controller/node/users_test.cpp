// Programs of several users, with real user ids, on one board.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/child.hpp"
#include "base/node_service.hpp"
#include "shm/gates.hpp"
#include "shm/messages.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

constexpr const char* kAnnaMayAskFor10 = R"({
  "default": {"max_priority": 0, "max_clients": 3},
  "rules": [{"user": 12345, "max_priority": 10}, {"group": 777, "admit": false}]
})";

int priority_of(const Look& look, const FakeClient& client) {
  return shm::SlotInfo::unpack(look.slot(client.slot()).info.load()).priority;
}

// Prevents: each user has a board of his own, and nobody's priority means anything to the others.
TEST_F(UsersTest, AJobOfOneUserHoldsTheProgramsOfAnother) {
  start(kAnnaMayAskFor10);
  const auto low = client_of(kBert, 0);
  const auto high = client_of(kAnna, 10);
  ASSERT_TRUE(low->attached() && high->attached()) << low->greeting() << high->greeting();
  const Look look("node");
  high->order("begin");
  EXPECT_EQ(look.gate(low->slot()), shm::bit(high->slot()));
  high->order("end");
  EXPECT_EQ(look.gate(low->slot()), 0U);
  EXPECT_EQ(look.slot(low->slot()).uid.load(), kBert);
  EXPECT_EQ(look.slot(high->slot()).uid.load(), kAnna);
}

// Prevents: the death of one user's program holds another user's program.
TEST_F(UsersTest, AKilledHolderOfAnotherUserOpensTheGate) {
  start(kAnnaMayAskFor10);
  const auto low = client_of(kBert, 0);
  const auto high = client_of(kAnna, 10);
  ASSERT_TRUE(low->attached() && high->attached());
  const Look look("node");
  high->order("begin");
  high->process().signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return look.gate(low->slot()) == 0; }));
  EXPECT_TRUE(eventually([&] { return look.state(high->slot()) == shm::SlotState::kFree; }));
}

// Prevents: any user gets the GPU by asking for a high priority; or is left ungated, which harms
// the others more than his program at priority 0.
TEST_F(UsersTest, AboveTheCeilingAProgramRunsGatedAtPriority0) {
  start(kAnnaMayAskFor10);
  const auto bold = client_of(kBert, 200);
  ASSERT_TRUE(bold->attached()) << bold->greeting();
  const std::string notice =
      "priority 200 is refused: user uid 12346 may ask for at most 0; runs at priority 0";
  EXPECT_NE(bold->greeting().find(notice), std::string::npos) << bold->greeting();
  EXPECT_EQ(priority_of(Look("node"), *bold), 0);
  EXPECT_TRUE(logs("lowered pid " + std::to_string(bold->pid()) + ": " + notice));
  EXPECT_TRUE(logs("(uid 12346, asked for priority 200)"));
  const auto modest = client_of(kAnna, 10);
  EXPECT_EQ(priority_of(Look("node"), *modest), 10) << "the ceiling itself is allowed";
  EXPECT_EQ(modest->greeting().find("refused"), std::string::npos);
}

// Prevents: a user whom the site excludes has a slot; or finds out only from the missing gates.
TEST_F(UsersTest, AUserWhoIsNotAdmittedIsRefusedInALine) {
  start(kAnnaMayAskFor10);
  FakeClient denied(
      "node", 0, 1,
      {kSetpriv, "--reuid", "12346", "--regid", "12346", "--groups", "777", "--inh-caps=-all"});
  EXPECT_FALSE(denied.attached());
  EXPECT_NE(denied.greeting().find("the site policy does not admit user uid 12346"),
            std::string::npos)
      << denied.greeting();
  EXPECT_TRUE(logs("refused pid " + std::to_string(denied.pid())));
  EXPECT_TRUE(logs("(uid 12346, asked for priority 0)"));
  EXPECT_EQ(Look("node").board().used.load(), 0U);
}

// Prevents: one user takes all slots.
TEST_F(UsersTest, AUserGetsNoMoreSlotsThanThePolicyAllows) {
  start(kAnnaMayAskFor10);
  std::vector<std::unique_ptr<FakeClient>> hog;
  for (int i = 0; i < 3; ++i) hog.push_back(client_of(kBert, 0));
  for (const auto& one : hog) EXPECT_TRUE(one->attached()) << one->greeting();
  const auto fourth = client_of(kBert, 0);
  EXPECT_FALSE(fourth->attached());
  EXPECT_NE(fourth->greeting().find("user uid 12346 has 3 clients"), std::string::npos)
      << fourth->greeting();
  EXPECT_TRUE(client_of(kAnna, 0)->attached()) << "another user has his own share";
  hog.back()->process().signal(SIGKILL);
  EXPECT_TRUE(eventually([] { return client_of(kBert, 0)->attached(); }));
}

/// How many of `asked` clients of `uid` get a slot. They run until `running` ends. The first one is
/// on this device, and each of the others on the next one if they `spread`.
int taken_by(uid_t uid, int priority, int asked, std::vector<base::Fd>& running, int device = 1,
             bool spread = false) {
  base::Pipe ready;
  base::Pipe until;
  const pid_t child = fork();
  if (child == 0) {
    until.write = base::Fd();
    if (setgid(uid) != 0 || setuid(uid) != 0) _exit(1);
    char granted = 0;
    for (int i = 0; i < asked; ++i) {
      shm::Reply reply;
      const int fd = shm::connect_controller(base::node_socket().c_str());
      if (fd < 0 ||
          shm::ask(fd, good_request(priority, spread ? device + i : device), reply, 10'000) != 0)
        _exit(2);
      granted = static_cast<char>(granted + (reply.status == shm::ReplyStatus::kOk ? 1 : 0));
    }
    if (write(ready.write.get(), &granted, 1) != 1) _exit(3);
    _exit(static_cast<int>(read(until.read.get(), &granted, 1)));
  }
  char granted = 0;
  EXPECT_EQ(read(ready.read.get(), &granted, 1), 1);
  running.push_back(std::move(until.write));
  return granted;
}

// Prevents: eight ordinary users with eight programs each take all slots, and root's critical
// program runs without protection. The same of users who may hold others a little.
TEST_F(UsersTest, ManyUsersLeaveSlotsForThoseWhoMayHoldThem) {
  start(R"({"rules": [{"user": 12345, "max_priority": 10, "max_clients": 63}]})");
  std::vector<base::Fd> running;
  int taken = 0;
  for (uid_t user = 0; user < 8; ++user) taken += taken_by(20'000 + user, 0, 8, running);
  EXPECT_EQ(taken, shm::kSlots - 16);
  EXPECT_EQ(taken_by(kAnna, 0, 1, running), 0);
  EXPECT_EQ(taken_by(kAnna, 10, 20, running), 16 - 4);
  const FakeClient root("node", 100);
  EXPECT_TRUE(root.attached()) << root.greeting();
  EXPECT_EQ(priority_of(Look("node"), root), 100);
}

// Prevents: users who invent devices leave no place for the one of a critical program.
TEST_F(UsersTest, ManyUsersLeaveDevicesForThoseWhoMayHoldThem) {
  start(R"({"rules": [{"user": 12345, "max_priority": 10, "max_clients": 63}]})");
  std::vector<base::Fd> running;
  int taken = 0;
  for (int user = 0; user < 4; ++user) {
    taken += taken_by(20'000U + static_cast<uid_t>(user), 0, 8, running, 1 + 8 * user, true);
  }
  EXPECT_EQ(taken, shm::kMaxDevices - 8);
  EXPECT_EQ(taken_by(kBert, 0, 1, running, 5), 1) << "a device that is on the board";
  EXPECT_EQ(taken_by(kAnna, 10, 20, running, 100, true), 8);
}

// Prevents: root's own programs are limited by a policy that does not name root.
TEST_F(UsersTest, RootMayAskForEverythingUnlessARuleNamesRoot) {
  start(kAnnaMayAskFor10);
  const FakeClient root("node", 255);
  EXPECT_EQ(priority_of(Look("node"), root), 255);
}

TEST_F(UsersTest, WithoutAPolicyOnlyRootMayAskForAPriority) {
  start();
  const FakeClient root("node", 255);
  const auto other = client_of(kAnna, 1);
  EXPECT_EQ(priority_of(Look("node"), root), 255);
  EXPECT_EQ(priority_of(Look("node"), *other), 0);
}

// Prevents: a program in a container or under another cgroup gets the terms of all others.
TEST_F(UsersTest, ARuleMayNameACgroup) {
  start(R"({"rules": [{"cgroup": "*", "user": 12345, "max_priority": 7}]})");
  const auto client = client_of(kAnna, 7);
  const std::string cgroup = read_file("/proc/self/cgroup");
  if (cgroup.empty()) GTEST_SKIP() << "no cgroups here";
  EXPECT_EQ(priority_of(Look("node"), *client), 7);
}

// Prevents: a user leaves the rules and the limits of his own id by an id of his user namespaces.
TEST_F(UsersTest, ASubordinateIdCountsAsItsOwner) {
  constexpr uid_t kOfBert = 500'007;
  const std::string ids = parent_.write("subuid", "12346:500000:65536\n");
  start(R"({"default": {"max_clients": 1}, "rules": [{"user": 12345, "admit": false}]})",
        {kUnshare, "--mount", "sh", "-c", "mount --bind " + ids + " /etc/subuid && exec \"$@\"",
         "sh"});
  auto first = client_of(kOfBert, 0);
  ASSERT_TRUE(first->attached()) << first->greeting();
  EXPECT_EQ(Look("node").slot(first->slot()).uid.load(), kBert);
  const auto second = client_of(kBert, 0);
  EXPECT_NE(second->greeting().find("user uid 12346 has 1 clients"), std::string::npos)
      << second->greeting();
  static_cast<void>(parent_.write("subuid", "12345:500000:65536\n"));
  service().signal(SIGHUP);
  ASSERT_TRUE(logs("read the site policy again"));
  const auto refused = client_of(kOfBert, 0);
  EXPECT_NE(refused->greeting().find("does not admit user uid 12345"), std::string::npos)
      << refused->greeting();
}

// Prevents: a user whose server of names is away keeps the service from all others; or the rule of
// an unknown name is one for everybody.
TEST_F(UsersTest, ARuleWithAnUnknownNameIsLeftOutAtTheStart) {
  const std::string policy =
      R"({"rules": [{"user": "no such user", "max_priority": 200}, {"user": 12345, "max_priority": 10}]})";
  start(policy);
  EXPECT_TRUE(logs("/rules/0: this machine has no user 'no such user'; this rule is left out"));
  EXPECT_EQ(priority_of(Look("node"), *client_of(kBert, 200)), 0);
  EXPECT_EQ(priority_of(Look("node"), *client_of(kAnna, 10)), 10);
  service().signal(SIGHUP);
  EXPECT_TRUE(logs("the old site policy stays in force"));
}

// Prevents: a job of Slurm gets by its environment what the site's ceilings do not allow its
// option.
TEST_F(UsersTest, TheCeilingOfACgroupHolds) {
  std::string own;
  std::istringstream lines(read_file("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::string last = line.substr(line.rfind('/') + 1);
    if (!last.empty()) own = last;
  }
  if (own.empty()) GTEST_SKIP() << "this process is in the root of every hierarchy";
  start(kAnnaMayAskFor10);
  std::filesystem::create_directory(folder() + "/ceilings");
  std::ofstream(folder() + "/ceilings/" + own) << "  4\n";
  const auto above = client_of(kAnna, 5);
  EXPECT_EQ(priority_of(Look("node"), *above), 0);
  EXPECT_NE(above->greeting().find("user uid 12345 may ask for at most 4"), std::string::npos)
      << above->greeting();
  EXPECT_EQ(priority_of(Look("node"), *client_of(kAnna, 4)), 4);
  EXPECT_EQ(priority_of(Look("node"), *client_of(kBert, 4)), 0) << "the site policy holds too";
}

// Prevents: a new policy needs a restart; a policy with a fault opens or closes everything.
TEST_F(UsersTest, HangUpReadsThePolicyAgainAndABadOneIsNotUsed) {
  start(kAnnaMayAskFor10);
  const auto rewrite = [&](const std::string& text) {
    static_cast<void>(parent_.write("policy.json", text));
    service().signal(SIGHUP);
  };
  rewrite(R"({"rules": [{"usr": 12345, "max_priority": 200}]})");
  EXPECT_TRUE(logs("the old site policy stays in force"));
  EXPECT_TRUE(logs("did you mean"));
  EXPECT_EQ(priority_of(Look("node"), *client_of(kAnna, 10)), 10);
  rewrite(R"({"rules": [{"user": 12345, "max_priority": 200}]})");
  ASSERT_TRUE(logs("read the site policy again"));
  EXPECT_EQ(priority_of(Look("node"), *client_of(kAnna, 200)), 200);
  EXPECT_FALSE(service().ended());
}

// Prevents: a service that makes its folder under a strict umask is unreachable for others.
TEST_F(UsersTest, EveryUserCanReachTheSocketWhateverTheUmask) {
  const mode_t before = umask(0077);
  start();
  umask(before);
  EXPECT_TRUE(client_of(kAnna, 0)->attached());
  struct stat found {};
  ASSERT_EQ(stat(socket().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0666U);
  ASSERT_EQ(stat((folder() + "/board").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  ASSERT_EQ(stat((folder() + "/lock").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U) << "whoever can open it can lock it";
}

}  // namespace
}  // namespace sluice::test
