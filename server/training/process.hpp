#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"

namespace sluice::server::training {

/// A running trainer: a child in a process group of its own, whose standard output is read line by
/// line. It gets SIGKILL when the thread that started it ends, however that ends. Not thread-safe,
/// but signal() may be called from any thread while the object lives.
class Process {
 public:
  using Line = std::function<void(const std::string&)>;

  /// Throws base::RunError if no process can be started.
  Process(const std::vector<std::string>& args, const std::vector<std::string>& environment);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  /// Kills and reaps what still runs.
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// For poll(): readable when there is output, or the output has ended.
  [[nodiscard]] int output_fd() const { return output_.get(); }

  /// Passes on the lines that have come, but only a part of much output. Does not wait.
  void read_lines(const Line& line);
  /// The wait status, once the process has ended. Passes on what is left of its output.
  [[nodiscard]] std::optional<int> ended(const Line& line);
  /// Nobody waits any more for the process, which the kernel could not end.
  void abandon() { reaped_ = true; }
  /// To all processes of the group.
  void signal(int number) const;

 private:
  base::Fd output_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  std::string rest_;  ///< Of a line.
};

}  // namespace sluice::server::training
