// The limits of device memory that a site policy sets: they hold for the programs of any user, also
// for those that can only read the board.
#include <nlohmann/json.hpp>

#include "tests/controller/node/node_service.hpp"
#include "tests/simgpu/shared_folder.hpp"

namespace sluice::test {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
constexpr const char* kTwoGiB = R"({
  "default": {"max_memory": "2GiB"}, "rules": [{"user": 12345, "max_priority": 10}]})";

class NodeMemoryLimits : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    setenv("SLUICE_SIM_MEMORY_MIB", "4096", 1);
  }
  void TearDown() override {
    unsetenv("SLUICE_SIM_MEMORY_MIB");
    UsersTest::TearDown();
    EXPECT_TRUE(gpu_.is_left_empty());
  }
  [[nodiscard]] static std::unique_ptr<Process> program_of(uid_t uid,
                                                           std::vector<std::string> options = {}) {
    std::vector<std::string> command = as_user(uid);
    options.insert(options.begin(), {SLUICE_EXEC_PROGRAM, "--priority", "0", "--gpu", "sim"});
    options.insert(options.end(), {"--", SLUICE_MEMORY_CLIENT});
    command.insert(command.end(), options.begin(), options.end());
    return std::make_unique<Process>(command);
  }
  static std::string say(Process& program, const std::string& line) {
    program.write_line(line);
    return program.read_line();
  }
  static std::string told(std::uint64_t free, std::uint64_t total) {
    return std::to_string(free) + " " + std::to_string(total) + " " + std::to_string(total);
  }
  static base::Captured set_as(uid_t uid, const Process& program, const std::string& memory) {
    std::vector<std::string> command = as_user(uid);
    if (uid == 0) command.clear();
    const std::vector<std::string> more{SLUICE_SET_PROGRAM, "pid:" + std::to_string(program.pid()),
                                        "--memory", memory};
    command.insert(command.end(), more.begin(), more.end());
    return Process(command).finish();
  }
  simgpu::test::SharedFolder gpu_;
};

// Prevents: a program takes all it wants before its first launch, or by a limit of its own.
TEST_F(NodeMemoryLimits, HoldForReadersAndWriters) {
  start(kTwoGiB);
  for (const uid_t user : {kBert, kAnna}) {
    const auto program = program_of(user);
    EXPECT_EQ(say(*program, "info"), told(2 * kGiB, 2 * kGiB)) << "before any allocation";
    EXPECT_EQ(say(*program, "alloc plain " + std::to_string(2 * kGiB)), "ok");
    EXPECT_EQ(say(*program, "alloc plain 1"), "error 2");
    EXPECT_EQ(say(*program, "free"), "ok");
    const base::Captured ended = program->finish();
    EXPECT_EQ(count_of(ended.err, "\n"), 1U) << ended.err;
  }
  const auto first = program_of(kBert);
  EXPECT_EQ(say(*first, "alloc physical " + std::to_string(2 * kGiB + 1)), "error 2")
      << "its first call";
}

TEST_F(NodeMemoryLimits, AUserMayAskForLessAndNotForMore) {
  start(kTwoGiB);
  const auto bold = program_of(kBert, {"--memory", "3GiB"});
  EXPECT_EQ(say(*bold, "info"), told(2 * kGiB, 2 * kGiB));
  const auto modest = program_of(kBert, {"--memory", "1GiB"});
  EXPECT_EQ(say(*modest, "info"), told(kGiB, kGiB));
  const base::Captured more = set_as(kBert, *modest, "3GiB");
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_NE(more.err.find("memory 3GiB: the site policy allows at most 2GiB"), std::string::npos)
      << more.err;
  EXPECT_EQ(say(*modest, "info"), told(kGiB, kGiB));
  EXPECT_EQ(set_as(kBert, *modest, "2GiB").exit_code, 0);
  EXPECT_EQ(say(*modest, "info"), told(2 * kGiB, 2 * kGiB));
  EXPECT_EQ(set_as(kBert, *modest, "1.5GiB").exit_code, 0);
  EXPECT_EQ(set_as(kBert, *modest, "none").exit_code, 0);
  EXPECT_EQ(say(*modest, "info"), told(2 * kGiB, 2 * kGiB)) << "none is what the site allows";
  EXPECT_EQ(set_as(0, *modest, "3GiB").exit_code, 0) << "root may give more";
  EXPECT_EQ(say(*modest, "info"), told(3 * kGiB, 3 * kGiB));
  EXPECT_NE(bold->finish().err.find("memory 3GiB is above the site policy's limit; runs with 2GiB"),
            std::string::npos);
}

// Prevents: `sluice set`, run where another rule matches, gives more than the program's own rule; a
// new service forgets the limits.
TEST_F(NodeMemoryLimits, WhatHeldAtTheAttachHoldsForChanges) {
  start(kTwoGiB);
  const auto program = program_of(kBert);
  EXPECT_EQ(say(*program, "info"), told(2 * kGiB, 2 * kGiB));
  kill_service();
  start(R"({"default": {"max_memory": "none"}})");
  EXPECT_TRUE(logs("client attached again"));
  EXPECT_EQ(say(*program, "info"), told(2 * kGiB, 2 * kGiB));
  EXPECT_EQ(set_as(kBert, *program, "3GiB").exit_code, 2);
  EXPECT_EQ(set_as(kBert, *program, "1GiB").exit_code, 0);
  EXPECT_EQ(say(*program, "info"), told(kGiB, kGiB));
}

}  // namespace
}  // namespace sluice::test
