#pragma once
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

/// Child processes, and the pipes to them.
namespace sluice::base {

/// A pipe. Both ends are closed on exec. In a process that has closed a standard file, no end gets
/// its number: a child would lose the end that becomes this file. Throws RunError if there is none
/// to be had.
struct Pipe {
  Fd read;
  Fd write;
  Pipe() {
    const StandardFiles taken;
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw RunError(std::string("no pipe: ") + std::strerror(errno));
    }
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
};

/// How to start a child.
struct ChildOptions {
  std::vector<std::string> args;  ///< args[0] is the program's path.
  /// NAME=VALUE entries that are added to the environment or replace entries of the same name.
  std::vector<std::string> environment;
  std::string folder;          ///< Working directory; empty: ours.
  int stdin_fd = -1;           ///< Becomes descriptor 0; -1: our stdin.
  int stdout_fd = -1;          ///< Becomes descriptor 1; -1: our stdout.
  int stderr_fd = -1;          ///< Becomes descriptor 2; -1: our stderr.
  int inherited_fd = -1;       ///< Stays open through exec under its own number.
  int signal_when_we_die = 0;  ///< Sent to the child when this thread ends, even by a SIGKILL.
  bool own_group = false;      ///< Ctrl-C in the terminal then signals only us.
};

/// Starts a program and returns its pid. The program inherits the descriptors 0 to 2 and
/// `inherited_fd`, and no other. If exec fails, the child exits with 127 and prints one
/// line to its stderr. Throws RunError if there can be no more processes. Returns when the program
/// runs, after a time that does not depend on how much memory this process has. Call it from a
/// thread that lives as long as the child should. If SIGCHLD is ignored, it no longer is.
[[nodiscard]] pid_t start_child(const ChildOptions& options);

/// The exit code of a wait status; 128 + signal if the child was killed.
[[nodiscard]] int exit_code(int wait_status);

/// Returns text such as "exited with 1" or "was killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_end(int wait_status);

/// The output of a program, and how the program ended.
struct Captured {
  int exit_code = 127;  ///< 128 + signal if the program was killed.
  std::string out;
  std::string err;
};

/// Runs a program to its end and captures both outputs.
[[nodiscard]] Captured capture(std::vector<std::string> args,
                               std::vector<std::string> environment = {});

/// Runs a program to its end with our own outputs. Returns its exit code, or 128 + signal.
int run_to_end(std::vector<std::string> args, std::vector<std::string> environment = {});

}  // namespace sluice::base
