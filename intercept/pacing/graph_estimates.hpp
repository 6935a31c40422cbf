#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "intercept/pacing/durations.hpp"

namespace sluice::intercept {

/// How much work a GPU can hold at one time.
struct GpuSize {
  unsigned multiprocessors = 1;
  unsigned threads = 2048;         ///< Of a multiprocessor.
  unsigned shared_bytes = 65'536;  ///< Of a multiprocessor.
};

/// The kernels of an executable whose durations were unknown when it was instantiated. When the
/// duration of the whole graph is known, these kernels are taken to share what the other kernels
/// leave of it.
struct ColdKernels {
  std::vector<std::uint64_t> kernels;  ///< Keys of LaunchDurations, with repetitions.
  std::uint64_t known_ns = 0;          ///< The time of the graph's other kernels and of its waits.
};

/// Estimated durations of kernels that were only launched inside graphs, where no kernel can be
/// measured by itself. Not thread-safe.
class GraphEstimates {
 public:
  /// A kernel counts as at least an eighth of the spacing, so that at most eight kernels of unknown
  /// duration run between two waits.
  static constexpr std::uint64_t kMostBetweenWaits = 8;
  /// The estimate for a kernel that fills the GPU once. With this value, 10 recorded models of 126
  /// to 955 kernels would get waits that take 5 % of their time (median). A wait for each kernel
  /// would take 2 to 100 %.
  static constexpr std::uint64_t kFullGpuNs = 100'000;
  /// The GPU time of a wait in a graph.
  static constexpr std::uint64_t kWaitNs = 2'600;

  /// ns: learned from measured graphs if possible, otherwise estimated from how much of the GPU the
  /// kernel fills.
  [[nodiscard]] std::uint64_t of(const Work& work, const GpuSize& gpu,
                                 std::uint64_t spacing_ns) const;
  /// For a graph with these kernels that took `total_ns`.
  void learn(const ColdKernels& cold, std::uint64_t total_ns);

 private:
  static constexpr std::size_t kMost = 16'384;
  std::unordered_map<std::uint64_t, std::uint64_t> ns_;  ///< By key.
};

}  // namespace sluice::intercept
