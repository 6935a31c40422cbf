#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sluice::test {

/// A piece of work in the log of the simulated GPU (SLUICE_SIM_LOG). Its times are CLOCK_MONOTONIC
/// ns, like those of a fault_client's answers.
struct LoggedWork {
  std::string kind;
  pid_t pid = 0;
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::string name;
};

/// A span of time, ends included.
struct Window {
  std::uint64_t from_ns = 0;
  std::uint64_t to_ns = 0;
  [[nodiscard]] bool holds(std::uint64_t ns) const { return from_ns <= ns && ns <= to_ns; }
};

/// The log of the simulated GPU. Complete only after the end of the GPU process.
class GpuLog {
 public:
  explicit GpuLog(const std::string& path);

  [[nodiscard]] const std::vector<LoggedWork>& all() const { return work_; }

  /// The kernels (or the work of another kind) of a process: a list per stream, in order.
  [[nodiscard]] std::map<std::uint64_t, std::vector<LoggedWork>> of(
      pid_t pid, const std::string& kind = "kernel") const;

  /// Kernels of a process that started within the window.
  [[nodiscard]] std::size_t starts(pid_t pid, const Window& window) const;

  /// The same for the stream of the process with the most kernels.
  [[nodiscard]] std::size_t most_starts_of_a_stream(pid_t pid, const Window& window) const;

  /// From `from_ns` to the end of the last kernel of `pid` that ended before `to_ns`. In this part
  /// of a job of `pid` the GPU certainly found the gates closed. The program ends its job only
  /// after the GPU has reported the kernel, however late a loaded machine lets the GPU process run.
  [[nodiscard]] Window until_last_kernel(pid_t pid, const Window& job) const;

 private:
  std::vector<LoggedWork> work_;
};

}  // namespace sluice::test
