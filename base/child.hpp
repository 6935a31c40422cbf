#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"

namespace sluice::base {

/// How a child is started.
struct ChildOptions {
  std::vector<std::string> args;  ///< args[0] is the program's path.
  /// NAME=VALUE, added to the environment or replacing what is there.
  std::vector<std::string> environment;
  std::string folder;          ///< Its working directory; empty: ours.
  int stdin_fd = -1;           ///< Becomes descriptor 0; -1: ours.
  int stdout_fd = -1;          ///< Becomes descriptor 1; -1: ours.
  int stderr_fd = -1;          ///< Becomes descriptor 2; -1: ours.
  int inherited_fd = -1;       ///< Kept open through exec, under its own number.
  int signal_when_we_die = 0;  ///< Sent to the child when this thread ends, SIGKILL of us included.
  bool own_group = false;      ///< Ctrl-C in the terminal is then for us alone.
};

/// Starts a program. Returns its pid. If it cannot be exec'ed the child ends with 127 and one line
/// on its stderr. Throws RunError if there is no fork. Call it from a thread that stays.
[[nodiscard]] pid_t start_child(const ChildOptions& options);

/// The exit code of a wait status; 128 + signal if the child was killed.
[[nodiscard]] int exit_code(int wait_status);

/// "exited with 1", "was killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_end(int wait_status);

/// What a program printed, and how it ended.
struct Captured {
  int exit_code = 127;  ///< 128 + signal if it was killed.
  std::string out;
  std::string err;
};

/// Runs a program to its end and captures both outputs.
[[nodiscard]] Captured capture(std::vector<std::string> args,
                               std::vector<std::string> environment = {});

/// Runs a program to its end on our own outputs. Returns its exit code, 128 + signal if killed.
int run_to_end(std::vector<std::string> args, std::vector<std::string> environment = {});

}  // namespace sluice::base
