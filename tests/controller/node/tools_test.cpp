// The commands of users on a machine with a node service.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/child.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/look.hpp"

namespace sluice::test {
namespace {

class Tools : public UsersTest {
 protected:
  static base::Captured run_as(uid_t uid, const std::vector<std::string>& words) {
    std::vector<std::string> command = as_user(uid);
    command.insert(command.end(), words.begin(), words.end());
    return base::capture(std::move(command));
  }
};

// Prevents: a user sees only a private session, or does not see whose programs hold his.
TEST_F(Tools, StatusOfAnyUserShowsTheUsersOfTheNode) {
  start(R"({"rules": [{"user": 12345, "max_priority": 10}]})");
  const auto low = client_of(kBert, 0);
  const auto high = client_of(kAnna, 10);
  ASSERT_TRUE(low->attached() && high->attached());
  const base::Captured text = run_as(kBert, {SLUICE_STATUS_PROGRAM});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("session node: controller pid"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("node service: site policy " + policy_file()), std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("    PID USER  PRI "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(std::to_string(high->pid()) + " 12345  10 "), std::string::npos)
      << text.out;
  const base::Captured json = run_as(kBert, {SLUICE_STATUS_PROGRAM, "--json"});
  const auto status = nlohmann::json::parse(json.out);
  EXPECT_EQ(status["session"], "node");
  EXPECT_EQ(status["clients"][0]["uid"], kAnna);
  EXPECT_EQ(status["clients"][1]["uid"], kBert);
}

TEST_F(Tools, StatusOfAPrivateSessionHasNoUsers) {
  const base::Captured text =
      base::capture({SLUICE_STATUS_PROGRAM, "--session", "no-such-session"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_NE(text.err.find("no session no-such-session is running"), std::string::npos) << text.err;
}

// Prevents: a user changes the programs of another one; or is not told why he cannot.
TEST_F(Tools, SetObeysOwnerAndCeiling) {
  start(R"({"rules": [{"user": 12345, "max_priority": 10}]})");
  const auto own = client_of(kBert, 0);
  const auto foreign = client_of(kAnna, 0);
  const auto set = [](uid_t user, const FakeClient& client, const std::string& priority) {
    return run_as(user, {SLUICE_SET_PROGRAM, "slot:" + std::to_string(client.slot()), "--priority",
                         priority});
  };
  const base::Captured other = set(kBert, *foreign, "0");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("the client belongs to user uid 12345: only this user and root"),
            std::string::npos)
      << other.err;
  const base::Captured high = set(kBert, *own, "3");
  EXPECT_EQ(high.exit_code, 2);
  EXPECT_NE(high.err.find("priority 3: user uid 12346 may ask for at most 0"), std::string::npos)
      << high.err;
  const auto set_as_root = [](const FakeClient& client) {
    return base::capture(
        {SLUICE_SET_PROGRAM, "slot:" + std::to_string(client.slot()), "--priority", "3"});
  };
  const base::Captured root = set_as_root(*foreign);
  EXPECT_EQ(root.exit_code, 0) << root.err;
  const base::Captured reader = set_as_root(*own);
  EXPECT_EQ(reader.exit_code, 2);
  EXPECT_NE(reader.err.find("it cannot hold others"), std::string::npos) << reader.err;
}

// Prevents: `sluice exec` starts a controller of its own next to the node service, or gives the
// program another session.
TEST_F(Tools, ExecChoosesTheNodeAndStartsNoController) {
  start();
  const std::vector<std::string> exec{SLUICE_EXEC_PROGRAM, "--priority", "0", "--", "/usr/bin/env"};
  const base::Captured found = run_as(kBert, exec);
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(found.err, "");
  EXPECT_NE(found.out.find("SLUICE_SESSION=node\n"), std::string::npos) << found.out;
  const std::string board = "/dev/shm/sluice." + std::to_string(kBert) + ".";
  EXPECT_FALSE(std::filesystem::exists(board + "node"));
  EXPECT_FALSE(std::filesystem::exists(board + "default"));
  kill_service();
  const base::Captured dead = run_as(kBert, exec);
  EXPECT_EQ(dead.exit_code, 0);
  EXPECT_NE(dead.err.find("the node service does not run"), std::string::npos) << dead.err;
  EXPECT_NE(dead.out.find("SLUICE_SESSION=node\n"), std::string::npos)
      << "the socket of a dead service still names the session";
}

// Prevents: the user reads "Permission denied", and does not know of what and what to do.
TEST_F(Tools, ExecSaysWhyAServiceIsNotTrusted) {
  start();
  chmod(folder().c_str(), 0777);
  const base::Captured said = run_as(
      kBert, {SLUICE_EXEC_PROGRAM, "--priority", "0", "--session", "node", "--", "/bin/true"});
  chmod(folder().c_str(), 0755);
  EXPECT_EQ(said.exit_code, 0);
  EXPECT_NE(said.err.find("the node service in " + folder() + " is not trusted: the folder must"),
            std::string::npos)
      << said.err;
  EXPECT_NE(said.err.find("chmod 755 " + folder()), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("; the program runs ungated"), std::string::npos) << said.err;
}

// Prevents: a script cannot tell a missing service from a missing client.
TEST_F(Tools, SetWithoutAServiceFailsAsStatusDoes) {
  start();
  kill_service();
  for (const std::vector<std::string>& command : {std::vector<std::string>{SLUICE_STATUS_PROGRAM},
                                                  {SLUICE_SET_PROGRAM, "x", "--priority", "1"}}) {
    const base::Captured said = run_as(kBert, command);
    EXPECT_EQ(said.exit_code, 1) << said.err;
    EXPECT_NE(said.err.find("the node service does not run; as root, "), std::string::npos)
        << said.err;
  }
}

// Prevents: a user's own controller takes the name of the session of all users.
TEST_F(Tools, AControllerOfSessionNodeIsRefused) {
  const base::Captured refused = base::capture({SLUICE_CONTROLLER_PROGRAM, "--session", "node"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("sluice node"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace sluice::test
