#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gpu.hpp"

namespace sluice::test {

/// Threads that give the GPU work until they are told to stop; each stamps its lane.
class Workers {
 public:
  explicit Workers(const Gpu& gpu) : gpu_(gpu) {}
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// `lanes` threads, each launching kernels of `us` with at most `depth` of them outstanding;
  /// 0: as many as the driver takes.
  void start_loops(std::size_t lanes, std::uint64_t us, std::uint64_t depth);

  /// One thread that launches, for ever, one captured graph of `kernels` kernels of `us`; two
  /// graphs are outstanding at a time. Returns when the graph has been captured.
  void start_graph(std::uint64_t kernels, std::uint64_t us);

  /// One thread that does explicit jobs of one kernel of `us` back to back; a lane counts jobs.
  void start_jobs(std::uint64_t us);

  /// Waits until the threads have ended: for ever if the driver blocks them.
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
