#include "intercept/pacing/graph_estimates.hpp"

#include <algorithm>

namespace sluice::intercept {

std::uint64_t GraphEstimates::of(const Work& work, const GpuSize& gpu,
                                 std::uint64_t spacing_ns) const {
  const auto learned = ns_.find(LaunchDurations::key_of(work));
  if (learned != ns_.end()) return learned->second;
  const auto product = [](const std::array<unsigned, 3>& size) {
    return static_cast<double>(size[0]) * size[1] * size[2];
  };
  const double share =
      std::max(product(work.block) / std::max(gpu.threads, 1U),
               static_cast<double>(work.shared_bytes) / std::max(gpu.shared_bytes, 1U));
  const double fills = product(work.grid) * share / std::max(gpu.multiprocessors, 1U);
  const double least = static_cast<double>(spacing_ns) / kMostBetweenWaits;
  const double most = static_cast<double>(spacing_ns) + 1;
  return static_cast<std::uint64_t>(
      std::clamp(fills * static_cast<double>(kFullGpuNs), least, most));
}

void GraphEstimates::learn(const ColdKernels& cold, std::uint64_t total_ns) {
  if (cold.kernels.empty()) return;
  const std::uint64_t rest = total_ns - std::min(total_ns, cold.known_ns);
  const std::uint64_t each = rest / cold.kernels.size();
  for (const std::uint64_t kernel : cold.kernels) {
    if (ns_.size() < kMost || ns_.contains(kernel)) ns_[kernel] = each;
  }
}

}  // namespace sluice::intercept
