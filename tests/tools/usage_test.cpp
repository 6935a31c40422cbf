// Each wrong command line: one line on stderr that says what was wrong, and exit code 2.
#include <filesystem>
#include <fstream>
#include <regex>
#include <vector>

#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

using Args = std::vector<std::string>;

class Usage : public CommandTest {
 protected:
  static void expect_error(const Args& args, int exit_code, const std::string& said) {
    const base::Captured result = sluice(args);
    EXPECT_EQ(result.exit_code, exit_code) << testing::PrintToString(args);
    EXPECT_EQ(lines_in(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
};

// Prevents: a command that runs and that `sluice --help` does not list.
TEST_F(Usage, TheHelpListsEveryCommand) {
  const std::string help = sluice({"--help"}).out;
  // Started by other commands.
  const std::regex internal(
      "sluice-(worker|simgpu|example|mps|compile|measure|operators).*|"
      "sluice-(opbench|predict)-report|sluice-predict-sharing");
  const auto folder =
      std::filesystem::path(SLUICE_TEST_PROGRAM).parent_path() / "../libexec/sluice";
  int commands = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string program = file.path().filename();
    if (!program.starts_with("sluice-") || std::regex_match(program, internal)) continue;
    ++commands;
    EXPECT_NE(help.find("\n  " + program.substr(7) + " "), std::string::npos) << program;
  }
  EXPECT_GE(commands, 14);
}

TEST_F(Usage, TheDispatcherHelpsAndRefuses) {
  for (const Args& args : {Args{}, Args{"--help"}, Args{"-h"}, Args{"help"}}) {
    const base::Captured result = sluice(args);
    EXPECT_EQ(result.exit_code, 0);
    for (const char* word : {"exec", "status", "top", "set", "run", "demo", "controller", "gpus",
                             "models", "bench", "help COMMAND", "--version", "Examples"}) {
      EXPECT_NE(result.out.find(word), std::string::npos) << word;
    }
  }
  EXPECT_EQ(sluice({"--version"}).out, "sluice " SLUICE_TEST_VERSION "\n");
  EXPECT_NE(sluice({"help", "exec"}).out.find("--priority"), std::string::npos);
  expect_error(
      {"stats"}, 2,
      "unknown command 'stats', did you mean 'status'? `sluice --help` lists the commands\n");
  expect_error({"replicate"}, 2, "unknown command 'replicate'; `sluice --help`");
  expect_error({"--verbose"}, 2, "unknown command '--verbose'");
  // A path must not reach out of libexec.
  expect_error({"../sluice/sluice-exec"}, 2, "unknown command");
}

TEST_F(Usage, Exec) {
  expect_error({"exec"}, 2, "no program: it comes after the options");
  expect_error({"exec", "--priority", "0", "--"}, 2, "no program");
  expect_error({"exec", "--", "true"}, 2, "--priority is required");
  expect_error({"exec", "--priority", "--", "true"}, 2, "--priority");
  for (const char* priority : {"256", "-1", "high", "1.5"}) {
    expect_error({"exec", "--priority=" + std::string(priority), "--", "true"}, 2,
                 "--priority: '" + std::string(priority) + "' is not a whole number from 0 to 255");
  }
  expect_error({"exec", "--priority=", "--", "true"}, 2, "--priority");
  for (const char* policy : {"device", "device:0", "sync:-1", "gate:1", "fast", "event:1000001"}) {
    expect_error({"exec", "--priority", "0", "--policy", policy, "--", "true"}, 2,
                 "'" + std::string(policy) + "' is not a policy: none, gate, sync:N");
  }
  expect_error({"exec", "--priority", "1", "--target", "50ms", "--", "true"}, 2,
               "'50ms' is not a target: p99=50ms, p95=800us");
  expect_error({"exec", "--priority", "1", "--target", "50ms", "--", "true"}, 2,
               "did you mean 'p99=50ms'?");
  expect_error({"exec", "--priority", "1", "--label", "team", "--", "true"}, 2,
               "'team' is not a label: KEY=VALUE");
  expect_error({"exec", "--priority", "1", "--label", "a=1", "--label", "a=2", "--", "true"}, 2,
               "--label: the label a is given twice");
  for (const char* session : {".a", "a/b", "a b", "123456789012345678901234567890123"}) {
    expect_error({"exec", "--priority", "0", "--session", session, "--", "true"}, 2,
                 "cannot name a session");
  }
  expect_error({"exec", "--priority", "0", "--gpu", "fake", "--", "true"}, 2,
               "'fake' is not one of real, sim");
  expect_error({"exec", "--priority", "0", "--name", "a\nb", "--", "true"}, 2,
               "cannot name a client");
  expect_error({"exec", "--priority", "0", "--log-level", "trace", "--", "true"}, 2,
               "'trace' is not one of off, warn, info, debug");
  expect_error({"exec", "--prioritty", "0", "--", "true"}, 2,
               "unknown option --prioritty, did you mean '--priority'? See sluice exec --help");
  expect_error({"exec", "--prioritty=0", "--", "true"}, 2, "did you mean '--priority'?");
}

TEST_F(Usage, ExecReadsVariablesAndRefusesThemAlike) {
  setenv("SLUICE_PRIORITY", "much", 1);
  expect_error({"exec", "--gpu", "sim", "--", "true"}, 2, "much");
  unsetenv("SLUICE_PRIORITY");
  setenv("SLUICE_POLICY", "some", 1);
  expect_error({"exec", "--priority", "0", "--", "true"}, 2, "'some' is not a policy");
}

// What cannot be run is said before a controller is started for it.
TEST_F(Usage, ExecLooksForTheProgramFirst) {
  expect_error({"exec", "--priority", "0", "--", "no-such-program"}, 2,
               "no such program: 'no-such-program' (not in any folder of PATH)");
  expect_error({"exec", "--priority", "0", "--", "./no/such"}, 2, "no such program: './no/such'");
  expect_error({"exec", "--priority", "0", "--", "/etc/passwd"}, 2,
               "'/etc/passwd' is not an executable file");
  expect_error({"exec", "--priority", "0", "--", "/tmp"}, 2, "'/tmp' is not an executable file");
  EXPECT_FALSE(std::filesystem::exists(board_file()));
}

// Prevents: a list of policies in which the default is missing.
TEST_F(Usage, HelpNamesEveryPolicy) {
  for (const char* command : {"exec", "set"}) {
    EXPECT_NE(sluice({command, "--help"}).out.find("device:Tus"), std::string::npos) << command;
  }
}

TEST_F(Usage, GpusAndStatus) {
  expect_error({"gpus", "--gpu", "fake"}, 2, "'fake' is not one of auto, real, sim");
  expect_error({"gpus", "more"}, 2, "more");
  expect_error({"status", "more"}, 2, "more");
  expect_error({"status", "--session", "a/b"}, 2, "cannot name a session");
  expect_error({"status"}, 1, "no session " + session_ + " is running");
  setenv("SLUICE_SESSION", "a/b", 1);
  expect_error({"status"}, 2, "cannot name a session");
}

// A board that cannot be read is named, never guessed at.
TEST_F(Usage, StatusRefusesABoardItCannotRead) {
  std::ofstream(board_file()) << "short";
  namespace fs = std::filesystem;
  fs::permissions(board_file(), fs::perms::owner_read | fs::perms::owner_write);
  expect_error({"status"}, 1, "is truncated (5 of");
  fs::permissions(board_file(), fs::perms::others_read, fs::perm_options::add);
  expect_error({"status"}, 1, "open to others");
  fs::remove(board_file());
}

}  // namespace
}  // namespace sluice::test
