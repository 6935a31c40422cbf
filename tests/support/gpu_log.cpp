#include "tests/support/gpu_log.hpp"

#include <algorithm>
#include <fstream>

namespace sluice::test {

GpuLog::GpuLog(const std::string& path) {
  std::ifstream file(path);
  LoggedWork work;
  while (file >> work.kind >> work.pid >> work.stream >> work.sequence >> work.start_ns >>
         work.end_ns >> work.name) {
    work_.push_back(work);
  }
}

std::map<std::uint64_t, std::vector<LoggedWork>> GpuLog::of(pid_t pid,
                                                            const std::string& kind) const {
  std::map<std::uint64_t, std::vector<LoggedWork>> streams;
  for (const LoggedWork& work : work_) {
    if (work.pid == pid && work.kind == kind) streams[work.stream].push_back(work);
  }
  return streams;
}

std::size_t GpuLog::starts(pid_t pid, const Window& window) const {
  return static_cast<std::size_t>(
      std::count_if(work_.begin(), work_.end(), [&](const LoggedWork& work) {
        return work.pid == pid && work.kind == "kernel" && window.holds(work.start_ns);
      }));
}

std::size_t GpuLog::most_starts_of_a_stream(pid_t pid, const Window& window) const {
  std::size_t most = 0;
  for (const auto& [stream, kernels] : of(pid)) {
    const auto count = std::count_if(kernels.begin(), kernels.end(), [&](const LoggedWork& work) {
      return window.holds(work.start_ns);
    });
    most = std::max(most, static_cast<std::size_t>(count));
  }
  return most;
}

Window GpuLog::until_last_kernel(pid_t pid, const Window& job) const {
  Window window{job.from_ns, job.from_ns};
  for (const LoggedWork& work : work_) {
    if (work.pid == pid && work.kind == "kernel" && job.holds(work.end_ns)) {
      window.to_ns = std::max(window.to_ns, work.end_ns);
    }
  }
  return window;
}

}  // namespace sluice::test
