#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::base {

/// How to start a Daemon.
struct DaemonOptions {
  std::vector<std::string> args;  ///< args[0] is the program's path.
  /// The whole environment, NAME=VALUE; empty: ours, without what makes a program a client of an
  /// MPS daemon.
  std::vector<std::string> environment;
  bool log_to_stderr = false;  ///< Else its stdout and stderr go to `log`, or to an unnamed file.
  int inherited_fd = -1;       ///< Stays open in the daemon under its own number.
  int log = -1;                ///< A descriptor that is open for appending; it stays the caller's.
};

/// A program that runs as a daemon, in a process session of its own. It is not a child of this
/// process: the program that `sluice exec` becomes must not find a child that it did not start.
class Daemon {
 public:
  /// Throws RunError if the program cannot be started.
  explicit Daemon(const DaemonOptions& options);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool ended() const;
  /// The last line that it wrote to its log; empty if its stderr is the user's.
  [[nodiscard]] std::string last_words() const;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int log_ = -1;
};

/// Our environment without the variables whose names begin with one of `prefixes`.
[[nodiscard]] std::vector<std::string> environment_without(
    const std::vector<std::string>& prefixes);

}  // namespace sluice::base
