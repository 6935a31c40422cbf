#pragma once
#include <cstdint>

namespace sluice::runner {

/// A worker's end of the load barrier: a SOCK_SEQPACKET socket inherited through exec. It says
/// when it has loaded, and is told when all have.
class WorkerBarrier {
 public:
  explicit WorkerBarrier(int fd) : fd_(fd) {}
  /// Says "ready" and waits. Returns the common start of all workers, CLOCK_MONOTONIC ns. Throws
  /// base::RunError if the runner is gone.
  [[nodiscard]] std::uint64_t wait_for_start() const;

 private:
  int fd_;
};

/// The runner's side. Neither blocks.
/// True if the worker has said that it is ready.
[[nodiscard]] bool worker_is_ready(int fd);
/// Tells a worker to start. A worker that is gone is no error here: its death is seen elsewhere.
void release_worker(int fd, std::uint64_t start_monotonic_ns);

}  // namespace sluice::runner
