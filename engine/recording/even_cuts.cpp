#include <algorithm>

#include "engine/recording/served_recording.hpp"

namespace sluice::engine {

std::vector<std::size_t> even_cuts(const Recording& recording, std::size_t blocks) {
  const std::size_t kernels = recording.kernels.size();
  blocks = std::min(std::max<std::size_t>(blocks, 1), std::max<std::size_t>(kernels, 1));
  std::vector<std::size_t> cuts;
  const auto total = static_cast<double>(recording.kernels_ns());
  double before = 0;
  for (std::size_t i = 0; i + 1 < kernels && cuts.size() + 1 < blocks; ++i) {
    before += static_cast<double>(recording.kernels[i].duration_ns);
    const double due = total * static_cast<double>(cuts.size() + 1) / static_cast<double>(blocks);
    // The kernels that are left must be enough for the blocks that are left.
    const bool last_chance = kernels - (i + 1) == blocks - (cuts.size() + 1);
    if (before >= due || last_chance) cuts.push_back(i + 1);
  }
  return cuts;
}

}  // namespace sluice::engine
