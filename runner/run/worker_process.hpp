#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"

namespace sluice::runner {

/// One model's process. It dies with the runner, even if the runner is killed.
class WorkerProcess {
 public:
  /// Starts the process. `args` is the command without the barrier's descriptor, `environment` is
  /// as in base::ChildOptions, and `output_file` gets both outputs. Throws base::RunError.
  WorkerProcess(std::string name, std::vector<std::string> args,
                std::vector<std::string> environment, std::string output_file);
  WorkerProcess(WorkerProcess&&) = default;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  /// Kills the process and waits for its end, at most 10 s.
  ~WorkerProcess();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int barrier_fd() const { return barrier_.get(); }

  /// Updates ready(), ended() and end(). Never blocks.
  void look();
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] bool ended() const { return ended_; }
  /// How the process ended by itself, such as "exited with 1"; empty while it runs and after
  /// kill().
  [[nodiscard]] const std::string& end() const { return end_; }

  void release(std::uint64_t start_monotonic_ns) const;
  void kill();
  /// The last lines of its output.
  [[nodiscard]] std::vector<std::string> last_lines(std::size_t count) const;

 private:
  std::string name_;
  std::string output_file_;
  base::Fd barrier_;
  pid_t pid_ = -1;
  bool ready_ = false;
  bool ended_ = false;
  std::string end_;
};

}  // namespace sluice::runner
