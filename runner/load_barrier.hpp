#pragma once
#include <cstdint>

namespace sluice::runner {

/// A worker's end of the load barrier, a SOCK_SEQPACKET socket inherited through exec. The worker
/// reports that it has loaded, and learns when all workers have.
class WorkerBarrier {
 public:
  explicit WorkerBarrier(int fd) : fd_(fd) {}
  /// Sends "ready" and waits. Returns the common start of all workers, CLOCK_MONOTONIC in ns.
  /// Throws base::RunError if the runner is gone.
  [[nodiscard]] std::uint64_t wait_for_start() const;

 private:
  int fd_;
};

/// For the runner: whether the worker has sent "ready". Does not block.
[[nodiscard]] bool worker_is_ready(int fd);
/// For the runner: releases a worker. Does not block. Ignores a dead worker, which the runner
/// notices elsewhere.
void release_worker(int fd, std::uint64_t start_monotonic_ns);

}  // namespace sluice::runner
