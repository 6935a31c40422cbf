#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::tools {

/// A program that runs as a daemon, in a process session of its own. It is not a child of this
/// process: the program that `sluice exec` becomes must not find a child that it did not start.
class Daemon {
 public:
  /// Throws base::RunError if args[0] cannot be started.
  Daemon(std::vector<std::string> args, bool log_to_stderr);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] bool ended() const;
  /// The last line that it wrote to its log; empty if its stderr is the user's.
  [[nodiscard]] std::string last_words() const;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int log_ = -1;
};

}  // namespace sluice::tools
