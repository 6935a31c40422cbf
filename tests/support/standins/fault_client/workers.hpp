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

  /// Starts a thread that launches `period` - 1 kernels of `us` and one of 1 ms in turn.
  void start_mix(std::uint64_t us, std::uint64_t period);

  /// Captures a graph of `kernels` kernels of `us` and starts a thread that launches it again and
  /// again, two outstanding at a time, with a pause behind each launch.
  void start_graph(std::uint64_t kernels, std::uint64_t us, std::uint64_t pause_us);

  /// Starts a thread that does explicit jobs of one kernel of `us`, with pauses. The lane counts
  /// jobs.
  void start_jobs(std::uint64_t us, std::uint64_t pause_us);

  /// Starts a thread that holds `mib` of device memory, launches kernels of `us`, and obeys orders
  /// about memory.
  void start_training(std::uint64_t us, std::uint64_t mib);

  /// Waits until the threads have ended, which is never if the driver blocks them.
  void stop();

 private:
  void loop(Lane& lane, std::uint64_t us, std::uint64_t depth, std::uint64_t period = 0);
  void launch_graph(Lane& lane, CUstream stream, CUgraphExec exec, std::uint64_t pause_us);
  void do_jobs(Lane& lane, std::uint64_t us, std::uint64_t pause_us);
  void train(Lane& lane, std::uint64_t us, std::uint64_t bytes);
  void obey(std::uint64_t order);

  const Gpu& gpu_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace sluice::test
