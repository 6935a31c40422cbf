#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"

namespace sluice::runner {

/// One model's process, as the runner sees it. It is killed with the runner, however that ends.
class WorkerProcess {
 public:
  /// Starts it. `args` is the whole command but the barrier's descriptor; `environment`
  /// as in base::ChildOptions; its output goes to `output_file`. Throws base::RunError.
  WorkerProcess(std::string name, std::vector<std::string> args,
                std::vector<std::string> environment, std::string output_file);
  WorkerProcess(WorkerProcess&&) = default;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  /// Kills it and waits for its end, 10 s at most.
  ~WorkerProcess();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int barrier_fd() const { return barrier_.get(); }

  /// Looks whether it said that it is ready, and whether it ended. Never blocks.
  void look();
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] bool ended() const { return ended_; }
  /// How it ended by itself: "exited with 1"; empty while it runs and after kill().
  [[nodiscard]] const std::string& end() const { return end_; }

  void release(std::uint64_t start_monotonic_ns) const;
  void kill();
  /// The last lines that it printed.
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
