// The site policy: who gets what, and which files are refused.
#include "controller/site_policy.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/error.hpp"
#include "controller/node_admission.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::controller {
namespace {

Terms of_a_user(int priority, int clients) {
  return {.max_priority = priority,
          .max_clients = clients,
          .max_weight = 1,
          .min_give = shm::kDefaultGive};
}

class SitePolicyTest : public testing::Test {
 protected:
  [[nodiscard]] SitePolicy load(const std::string& text) const {
    const std::string file = folder_.write("node.json", text);
    chmod(file.c_str(), 0644);
    return SitePolicy::load(file);
  }
  /// The error line; empty if the policy is accepted.
  [[nodiscard]] std::string fault_of(const std::string& text) const {
    try {
      static_cast<void>(load(text));
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return {};
  }
  static Peer peer(uid_t uid, std::vector<gid_t> groups = {}) {
    return {uid, std::move(groups),
            std::make_shared<const ClientProcess>(ClientProcess::with_pid(getpid()))};
  }

  test::TempFolder folder_;
};

constexpr Terms kAll{true, 255, shm::kSlots};

TEST_F(SitePolicyTest, WithoutAFileRootMayAskForEverythingAndOthersForNothing) {
  const SitePolicy policy;
  EXPECT_EQ(policy.terms(peer(0)), kAll);
  EXPECT_EQ(policy.terms(peer(geteuid())), kAll);
  EXPECT_EQ(policy.terms(peer(4711)), of_a_user(0, 8));
}

// Prevents: a general rule wins over the special one in front of it, or the other way round.
TEST_F(SitePolicyTest, TheFirstRuleThatMatchesDecides) {
  const SitePolicy policy = load(R"({
    "default": {"max_priority": 1, "max_clients": 2},
    "rules": [
      {"user": 100, "max_priority": 100, "max_clients": 32},
      {"group": 50, "max_priority": 50},
      {"user": 100, "admit": false},
      {"user": 101, "group": 51, "admit": false},
      {"user": 0, "max_priority": 9}]})");
  EXPECT_EQ(policy.terms(peer(100, {50})), of_a_user(100, 32));
  EXPECT_EQ(policy.terms(peer(102, {7, 50})), of_a_user(50, 2)) << "the rest is the default's";
  EXPECT_EQ(policy.terms(peer(101, {7})), of_a_user(1, 2)) << "all parts of a rule must match";
  EXPECT_FALSE(policy.terms(peer(101, {51})).admitted);
  EXPECT_EQ(policy.terms(peer(0)), of_a_user(9, 2)) << "a rule may limit root";
}

TEST_F(SitePolicyTest, TheDefaultMayExcludeEverybodyElse) {
  const SitePolicy policy =
      load(R"({"default": {"admit": false}, "rules": [{"user": 5, "admit": true}]})");
  EXPECT_FALSE(policy.terms(peer(6)).admitted);
  EXPECT_TRUE(policy.terms(peer(5)).admitted);
  EXPECT_EQ(policy.terms(peer(0)), kAll);
}

TEST_F(SitePolicyTest, UsersAndGroupsHaveNamesOrNumbers) {
  const SitePolicy policy = load(R"({"rules": [
    {"user": "daemon", "max_priority": 3}, {"group": "daemon", "max_priority": 4}]})");
  EXPECT_EQ(policy.terms(peer(1)).max_priority, 3);
  EXPECT_EQ(policy.terms(peer(4711, {1})).max_priority, 4);
}

TEST_F(SitePolicyTest, ACgroupIsAPattern) {
  const Peer us = peer(4711);
  const std::string own = cgroup_of(*us.process).value_or("");
  if (own.empty()) GTEST_SKIP() << "no cgroups here";
  EXPECT_EQ(load(R"({"rules": [{"cgroup": "/*", "max_priority": 6}]})").terms(us).max_priority, 6);
  EXPECT_EQ(load(R"({"rules": [{"cgroup": ")" + own + R"(", "max_priority": 6}]})")
                .terms(us)
                .max_priority,
            6);
  EXPECT_EQ(
      load(R"({"rules": [{"cgroup": "/no.such/*", "max_priority": 6}]})").terms(us).max_priority,
      0);
}

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

// Prevents: a limit of memory that is another one than the site wrote, or none.
TEST_F(SitePolicyTest, MemoryIsLimitedByRules) {
  const SitePolicy policy = load(R"({
    "default": {"max_memory": "20GiB"},
    "rules": [{"user": 100, "max_memory": "40GiB"}, {"user": 101, "max_memory": "none"},
              {"user": 102, "max_priority": 3}]})");
  EXPECT_EQ(policy.terms(peer(100)).max_memory, 40 * kGiB);
  EXPECT_EQ(policy.terms(peer(101)).max_memory, shm::kNoLimit);
  EXPECT_EQ(policy.terms(peer(102)).max_memory, 20 * kGiB) << "the default's";
  EXPECT_EQ(policy.terms(peer(103)).max_memory, 20 * kGiB);
  EXPECT_EQ(policy.terms(peer(0)).max_memory, shm::kNoLimit);
  EXPECT_EQ(SitePolicy().terms(peer(4711)).max_memory, shm::kNoLimit);
  EXPECT_NE(fault_of(R"({"default": {"max_memory": "20"}})")
                .find("/default/max_memory: found \"20\", allowed: 20GiB,"),
            std::string::npos);
}

// Prevents: any user takes the GPU from those who do not ask for a weight.
TEST_F(SitePolicyTest, AWeightIsForThoseToWhomTheSiteGivesOne) {
  const SitePolicy policy = load(R"({
    "default": {"max_priority": 2}, "rules": [{"user": 100, "max_weight": 5}]})");
  EXPECT_EQ(policy.terms(peer(100)).max_weight, 5U);
  EXPECT_EQ(policy.terms(peer(101)).max_weight, 1U);
  EXPECT_EQ(policy.terms(peer(0)).max_weight, shm::kMostWeight);
  EXPECT_EQ(SitePolicy().terms(peer(4711)).max_weight, 1U);
  EXPECT_NE(fault_of(R"({"default": {"max_weight": 0}})").find("/default/max_weight: found 0"),
            std::string::npos);
}

// Prevents: a critical program of any user takes all from those below it.
TEST_F(SitePolicyTest, ProgramsOfUsersGiveTheDefaultUnlessTheSiteSaysOtherwise) {
  const SitePolicy policy = load(R"({
    "default": {"max_priority": 2, "min_give": "10%"},
    "rules": [{"user": 100, "min_give": "0"}, {"user": 101, "max_priority": 3},
              {"user": 0, "min_give": "2.5%"}]})");
  EXPECT_EQ(policy.terms(peer(100)).min_give, 0U);
  EXPECT_EQ(policy.terms(peer(101)).min_give, 100U) << "the default's";
  EXPECT_EQ(policy.terms(peer(102)).min_give, 100U);
  EXPECT_EQ(policy.terms(peer(0)).min_give, 25U);
  EXPECT_EQ(SitePolicy().terms(peer(4711)).min_give, shm::kDefaultGive);
  EXPECT_EQ(SitePolicy().terms(peer(0)).min_give, 0U);
  EXPECT_EQ(
      load(R"({"rules": [{"cgroup": "/a", "min_give": "20%"}]})").terms({7, {}, nullptr}).min_give,
      200U)
      << "a process whose cgroup is unknown";
  EXPECT_NE(fault_of(R"({"default": {"min_give": "5"}})")
                .find("/default/min_give: found \"5\", allowed: 0, or a percentage"),
            std::string::npos);
  EXPECT_NE(fault_of(R"({"default": {"min_give": 5}})").find("/default/min_give"),
            std::string::npos);
}

// Prevents: anybody, also root, makes all others wait for a long slice without a word of the site.
TEST_F(SitePolicyTest, ALongSliceIsForThoseToWhomTheSiteGivesOne) {
  const SitePolicy policy = load(R"({
    "default": {"max_slice": "5ms"},
    "rules": [{"user": 100, "max_slice": "100ms"}, {"user": 101, "max_priority": 3}]})");
  EXPECT_EQ(policy.terms(peer(100)).max_slice, 100'000U);
  EXPECT_EQ(policy.terms(peer(101)).max_slice, 5'000U) << "the default's";
  EXPECT_EQ(policy.terms(peer(0)).max_slice, 2'000U);
  EXPECT_EQ(SitePolicy().terms(peer(4711)).max_slice, 2'000U);
  EXPECT_EQ(load(R"({"rules": [{"user": 0, "max_slice": "2ms"}, {"cgroup": "/a"}]})")
                .terms({0, {}, nullptr})
                .max_slice,
            2'000U);
  EXPECT_EQ(load(R"({"rules": [{"user": 7, "max_slice": "9ms"}, {"cgroup": "/a"}]})")
                .terms({7, {}, nullptr})
                .max_slice,
            2'000U)
      << "a process whose cgroup is unknown";
  for (const char* wrong : {"\"1ms\"", "\"off\"", "\"auto\"", "\"101ms\"", "\"5\""}) {
    EXPECT_NE(
        fault_of(R"({"default": {"max_slice": )" + std::string(wrong) + "}}")
            .find("/default/max_slice: found " + std::string(wrong) + ", allowed: a time from 2ms"),
        std::string::npos)
        << wrong;
  }
}

// Prevents: a process whose cgroup is unknown gets more memory than the rule for it allows.
TEST_F(SitePolicyTest, TheLeastMemoryOfCgroupsHoldsForAnUnknownCgroup) {
  const Peer unknown{4711, {}, nullptr};
  const SitePolicy policy = load(R"({"default": {"max_memory": "30GiB"}, "rules": [
    {"cgroup": "/a", "max_memory": "20GiB"}, {"cgroup": "/b", "max_memory": "10GiB"},
    {"user": 5, "max_memory": "5GiB"}]})");
  EXPECT_EQ(policy.terms(unknown).max_memory, 10 * kGiB);
}

// Prevents: a process whose cgroup cannot be read passes by the rules for cgroups.
TEST_F(SitePolicyTest, RulesForCgroupsHoldForAnUnknownCgroup) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const Peer them{4711, {}, std::make_shared<const ClientProcess>(ClientProcess::with_pid(child))};
  const SitePolicy elsewhere = load(
      R"({"default": {"max_priority": 5}, "rules": [{"cgroup": "/no.such/*", "max_priority": 6}]})");
  const SitePolicy refuses = load(R"({"rules": [{"cgroup": "/no.such/*", "admit": false}]})");
  const SitePolicy others =
      load(R"({"default": {"max_priority": 5}, "rules": [{"user": 1, "max_priority": 6}]})");
  EXPECT_EQ(elsewhere.terms(them).max_priority, 5);
  EXPECT_TRUE(refuses.terms(them).admitted);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(all_cgroups_of(*them.process), std::nullopt);
  EXPECT_EQ(elsewhere.terms(them).max_priority, 0);
  EXPECT_FALSE(refuses.terms(them).admitted);
  EXPECT_EQ(others.terms(them).max_priority, 5) << "no rule names a cgroup";
  EXPECT_EQ(elsewhere.terms({0, {}, nullptr}).max_priority, 0) << "root too";
}

// Prevents: a process whose cgroup is unknown is admitted, or gets as many clients, by a rule for
// any cgroup.
TEST_F(SitePolicyTest, ARuleForAnyCgroupIsNotOneForAnUnknownCgroup) {
  const Peer unknown{4711, {}, nullptr};
  const SitePolicy admits = load(
      R"({"default": {"admit": false}, "rules": [{"cgroup": "*", "admit": true, "max_clients": 30}]})");
  EXPECT_FALSE(admits.terms(unknown).admitted);
  const SitePolicy grants =
      load(R"({"default": {"max_clients": 2}, "rules": [{"cgroup": "*", "max_clients": 30}]})");
  EXPECT_EQ(grants.terms(unknown), of_a_user(0, 2));
}

// Prevents: a process gets out of its cgroup of version 1, as the kernel shows it, by the end of
// its main thread.
TEST_F(SitePolicyTest, TheCgroupsOfAProcessWithoutItsMainThreadAreUnknown) {
  const pid_t child = fork();
  if (child == 0) {
    std::thread(pause).detach();
    syscall(SYS_exit, 0);  // this thread alone
  }
  const ClientProcess process = ClientProcess::with_pid(child);
  EXPECT_TRUE(test::eventually([&] { return !all_cgroups_of(process).has_value(); }));
  EXPECT_FALSE(process.ended());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Prevents: a rule with a typing error is silently another rule.
TEST_F(SitePolicyTest, FaultsAreNamed) {
  const auto says = [&](const std::string& text, const std::string& part) {
    const std::string fault = fault_of(text);
    EXPECT_NE(fault.find(part), std::string::npos) << text << ": " << fault;
    EXPECT_NE(fault.find("node.json"), std::string::npos) << fault;
    EXPECT_EQ(fault.find('\n'), std::string::npos) << fault;
  };
  says(R"({"default": {"max_prority": 1}})", R"(did you mean "max_priority"?)");
  says(R"({"rule": []})", R"(did you mean "rules"?)");
  says(R"({"rules": [{"usr": 1}]})", "/rules/0");
  says(R"({"rules": [{"max_priority": 1}]})", "a rule needs a user, a group or a cgroup");
  says(R"({"rules": [{"user": 1, "max_priority": 256}]})", "/rules/0/max_priority");
  says(R"({"rules": [{"user": 1, "max_priority": -1}]})", "/rules/0/max_priority");
  says(R"({"rules": [{"user": 1, "max_clients": 64}]})", "/rules/0/max_clients");
  says(R"({"rules": [{"user": "no such user"}]})", "no user 'no such user'");
  says(R"({"rules": [{"group": "no such group"}]})", "no group 'no such group'");
  says(R"({"rules": [{"user": -1}]})", "/rules/0/user");
  says(R"({"rules": [{"user": 1.5}]})", "/rules/0/user");
  says(R"({"rules": [{"user": 4294967295}]})", "/rules/0/user");  // what no process has
  EXPECT_EQ(fault_of(R"({"rules": [{"user": 4294967294}]})"), "");
  says(R"({"rules": [{"user": 1, "admit": "no"}]})", "/rules/0/admit");
  says(R"({"rules": {}})", "/rules");
  says("{", "not JSON");
}

// Prevents: a user who may write the policy gives himself the GPU.
TEST_F(SitePolicyTest, AFileThatOthersMayChangeIsRefused) {
  const std::string file = folder_.write("open.json", "{}");
  for (const mode_t mode : {0664, 0646}) {
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    EXPECT_THROW(SitePolicy::load(file), base::UsageError) << mode;
  }
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_NO_THROW(SitePolicy::load(file));
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's file";
  ASSERT_EQ(chown(file.c_str(), 4711, 4711), 0);
  EXPECT_THROW(SitePolicy::load(file), base::UsageError);
}

// Prevents: an unknown name hides another fault, or takes other rules with it.
TEST_F(SitePolicyTest, OnlyRulesWithUnknownNamesAreSkipped) {
  const std::string file = folder_.write("node.json", R"({"rules": [
    {"user": "no such user", "max_priority": 255}, {"group": "no such group", "user": 5},
    {"user": 5, "max_priority": 3}]})");
  std::vector<std::string> skipped;
  const SitePolicy policy = SitePolicy::load(file, &skipped);
  ASSERT_EQ(skipped.size(), 2U);
  EXPECT_EQ(skipped[0], file + ": /rules/0: this machine has no user 'no such user'");
  EXPECT_EQ(skipped[1], file + ": /rules/1: this machine has no group 'no such group'");
  EXPECT_EQ(policy.terms(peer(5)).max_priority, 3);
  EXPECT_EQ(policy.terms(peer(6)).max_priority, 0);
  static_cast<void>(
      folder_.write("node.json", R"({"rules": [{"user": "no such user", "max_priority": 256}]})"));
  EXPECT_THROW(SitePolicy::load(file, &skipped), base::UsageError);
}

// Prevents: SIGHUP ends the service of all users where it may have no more threads.
TEST(NodeAdmissionTest, AReloadWithoutAThreadEndsNothing) {
  test::ForkedChild starved([] {
    NodeAdmission admission("", "/none", -1, -1);
    if (!test::give_up_threads()) return 98;
    admission.reload();
    return 0;
  });
  EXPECT_EQ(starved.wait(), 0);
}

TEST_F(SitePolicyTest, AMissingFileIsSaid) {
  EXPECT_THROW(SitePolicy::load(folder_.file("missing.json")), base::UsageError);
}

}  // namespace
}  // namespace sluice::controller
