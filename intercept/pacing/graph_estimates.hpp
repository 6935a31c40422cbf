#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "intercept/pacing/durations.hpp"

namespace sluice::intercept {

/// How much work one GPU can hold at a time.
struct GpuSize {
  unsigned multiprocessors = 1;
  unsigned threads = 2048;         ///< Of a multiprocessor.
  unsigned shared_bytes = 65'536;  ///< Of a multiprocessor.
};

/// The kernels of an executable whose durations were not known when it was instantiated. Once the
/// duration of the whole graph is known, they are taken to share the rest of it.
struct ColdKernels {
  std::vector<std::uint64_t> kernels;  ///< Keys of LaunchDurations, with repetitions.
  std::uint64_t known_ns = 0;          ///< Of the graph's other kernels, and of its waits.
};

/// Durations of kernels that were only ever launched inside graphs, where no kernel is measured by
/// itself. For one thread at a time.
class GraphEstimates {
 public:
  /// A kernel counts as at least an eighth of the spacing, so that no more than eight of which
  /// nothing is known run between two waits.
  static constexpr std::uint64_t kMostBetweenWaits = 8;
  /// What a kernel that fills the GPU once counts as. With this, 10 recorded models of 126 to 955
  /// kernels would get waits at a median of 5 % of their time, where a wait for each kernel costs
  /// 2 to 100 %.
  static constexpr std::uint64_t kFullGpuNs = 100'000;
  /// What a wait in a graph costs the GPU.
  static constexpr std::uint64_t kWaitNs = 2'600;

  /// ns: from graphs that were measured, else from how much of the GPU the kernel fills.
  [[nodiscard]] std::uint64_t of(const Work& work, const GpuSize& gpu,
                                 std::uint64_t spacing_ns) const;
  /// The graph with these kernels takes so long.
  void learn(const ColdKernels& cold, std::uint64_t total_ns);

 private:
  static constexpr std::size_t kMost = 16'384;
  std::unordered_map<std::uint64_t, std::uint64_t> ns_;  ///< By key.
};

}  // namespace sluice::intercept
