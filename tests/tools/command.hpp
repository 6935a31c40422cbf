#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

/// Runs the built programs as a user does, each test in a session of its own.
namespace sluice::tools::test {

struct Result {
  int exit_code = -1;  ///< 128 + signal where one ended it.
  std::string out;
  std::string err;
};

/// A program with pipes to all three streams. Killed with the object if it still runs.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void write_line(const std::string& line) const;
  /// The next line of its stdout; empty at its end or after kPatience.
  std::string read_line();
  /// Closes its stdin and reads both streams to their end, so it also waits for whoever else holds
  /// them open. Kills it after kPatience.
  Result finish();

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string unread_;
};

/// `sluice ARGS` of this build, to its end.
Result sluice(std::vector<std::string> args);
/// The command line of `sluice ARGS`, for a Process.
std::vector<std::string> sluice_command(std::vector<std::string> args);

[[nodiscard]] int lines_in(const std::string& text);

/// A session and a runtime folder of its own; at the end of a test nothing may be left of either.
class SessionTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] const std::string& session() const { return session_; }
  [[nodiscard]] std::string board_file() const;
  /// Pid of the session's controller by its own word, or 0.
  [[nodiscard]] pid_t controller_pid() const;

 private:
  std::string session_;
  std::string folder_;
};

}  // namespace sluice::tools::test
