#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::tools {

/// A program started as a daemon: in a session of its own, and no child of ours, so that the
/// program that `sluice exec` becomes never finds a child that it did not start.
class Daemon {
 public:
  /// Throws base::RunError if args[0] cannot be started.
  Daemon(std::vector<std::string> args, bool log_to_stderr);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] bool ended() const;
  /// The last line it wrote to stderr, where that was not given to the user already.
  [[nodiscard]] std::string last_words() const;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int log_ = -1;
};

}  // namespace sluice::tools
