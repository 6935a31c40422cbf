#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gpu.hpp"

namespace sluice::test {

/// Threads that launch work until they are told to stop. Each thread stamps its lane.
class Workers {
 public:
  explicit Workers(const Gpu& gpu) : gpu_(gpu) {}
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Starts `lanes` threads that launch kernels of `us`, each with at most `depth` outstanding.
  /// With depth 0 each has as many outstanding as the driver takes.
  void start_loops(std::size_t lanes, std::uint64_t us, std::uint64_t depth);

  /// Captures a graph of `kernels` kernels of `us` and starts a thread that launches it again and
  /// again, two outstanding at a time.
  void start_graph(std::uint64_t kernels, std::uint64_t us);

  /// Starts a thread that does explicit jobs of one kernel of `us` back to back. The lane counts
  /// jobs.
  void start_jobs(std::uint64_t us);

  /// Waits until the threads have ended, which is never if the driver blocks them.
  void stop();

 private:
  void loop(Lane& lane, std::uint64_t us, std::uint64_t depth);
  void launch_graph(Lane& lane, CUstream stream, CUgraphExec exec);
  void do_jobs(Lane& lane, std::uint64_t us);

  const Gpu& gpu_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace sluice::test
