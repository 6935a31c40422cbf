#include "base/command_line.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "tests/support/forked_child.hpp"

namespace sluice::base {
namespace {

class CommandLine : public testing::Test {
 protected:
  CommandLine() { add_session_option(app_, session_); }
  ~CommandLine() override { unsetenv("SLUICE_SESSION"); }

  /// The exit code with which the program would end, or nothing. What it prints goes to err_.
  std::optional<int> parse(std::vector<const char*> args) {
    args.insert(args.begin(), "program");
    testing::internal::CaptureStderr();
    const auto code = base::parse(app_, static_cast<int>(args.size()), args.data());
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  CLI::App app_{"A program", "program"};
  std::string session_ = "default";
  std::string err_;
};

TEST_F(CommandLine, AnOptionWinsOverItsVariable) {
  setenv("SLUICE_SESSION", "variable", 1);
  EXPECT_EQ(parse({}), std::nullopt);
  EXPECT_EQ(session_, "variable");
  EXPECT_EQ(parse({"--session", "option"}), std::nullopt);
  EXPECT_EQ(session_, "option");
  setenv("SLUICE_SESSION", "", 1);
  EXPECT_EQ(parse({}), std::nullopt) << "as good as unset";
  setenv("SLUICE_SESSION", "a/b", 1);
  EXPECT_EQ(parse({"--session", "option"}), std::nullopt) << "nobody asks for the variable";
  EXPECT_EQ(session_, "option");
}

// Prevents: a bad variable that CLI11 passes over, so that the program uses the default.
TEST_F(CommandLine, ABadVariableIsAUsageErrorOfOneLine) {
  setenv("SLUICE_SESSION", "a/b", 1);
  EXPECT_EQ(parse({}), kExitUsage);
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
  EXPECT_NE(err_.find("'a/b' cannot name a session"), std::string::npos) << err_;
  EXPECT_EQ(session_, "default");
}

TEST_F(CommandLine, WrongUsageIsOneLineThatNamesHelp) {
  EXPECT_EQ(parse({"--sesion", "a"}), kExitUsage);
  EXPECT_EQ(err_,
            "program: unknown option --sesion, did you mean '--session'? See program --help\n");
}

// Prevents: a hint at a help that does not list the option.
TEST_F(CommandLine, WrongUsageOfASubcommandNamesItsHelp) {
  std::string model;
  CLI::App* const command = app_.add_subcommand("run", "Runs");
  command->add_option("--model", model)->required();
  EXPECT_EQ(parse({"run"}), kExitUsage);
  EXPECT_EQ(err_, "program: --model is required; see program run --help\n");
  EXPECT_EQ(parse({"run", "--model", "a", "--modle", "b"}), kExitUsage);
  EXPECT_EQ(err_,
            "program: unknown option --modle, did you mean '--model'? See program run --help\n");
  EXPECT_EQ(parse({"--nosuch"}), kExitUsage);
  EXPECT_EQ(err_, "program: unknown option --nosuch; see program --help\n");
}

// Prevents: a count below its least, or one that a program would take as memory, such as 10^18.
TEST_F(CommandLine, ACountHasALeastAndAGreatestValue) {
  std::size_t count = 7;
  count_option(app_, "-n,--count", count, "How many", 2);
  const std::string help = app_.help();
  const bool has_default = help.find("N=7") != std::string::npos ||  // CLI11 2.2
                           help.find("N [7]") != std::string::npos;  // CLI11 2.4
  EXPECT_TRUE(has_default) << help;
  EXPECT_EQ(parse({"-n", "2"}), std::nullopt);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(parse({"--count", "1000000"}), std::nullopt);
  EXPECT_EQ(count, 1'000'000U);
  for (const char* bad : {"1", "1000001", "-3", "2.5", "many"}) {
    EXPECT_EQ(parse({"--count", bad}), kExitUsage) << bad;
    EXPECT_NE(err_.find(bad), std::string::npos) << err_;
  }
}

TEST(RunProgram, EachErrorHasItsExitCode) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_program("p", [] { return 7; }), 7);
  EXPECT_EQ(run_program("p", []() -> int { throw UsageError("wrong"); }), kExitUsage);
  EXPECT_EQ(run_program("p", []() -> int { throw RunError("failed"); }), kExitFailed);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "p: wrong\np: failed\n");
}

// Prevents: `sluice status --json >FILE` on a full disk leaves a part of the JSON, and exits with
// 0.
TEST(RunProgram, OutputThatIsLostIsAFailure) {
  const auto code = [](const char* out) {
    std::fflush(stdout);
    test::ForkedChild program([out] {
      dup2(open(out, O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
      return run_program("p", [] {
        std::cout << "text";
        return kExitFine;
      });
    });
    return program.wait();
  };
  EXPECT_EQ(code("/dev/full"), kExitFailed);
  EXPECT_EQ(code("/dev/null"), kExitFine);
}

}  // namespace
}  // namespace sluice::base
