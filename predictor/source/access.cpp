#include "predictor/source/access.hpp"

#include <algorithm>
#include <vector>

namespace sluice::predictor {
namespace {

constexpr std::int64_t kSector = 32;
constexpr std::int64_t kLine = 128;
constexpr std::int64_t kBank = 4;
constexpr std::size_t kBanks = 32;
constexpr std::int64_t kFarthest = std::int64_t{1} << 48;  ///< Elements; no memory is larger.

/// The first byte of an access.
std::int64_t first_byte(std::int64_t index, std::int64_t bytes) {
  return std::clamp(index, -kFarthest, kFarthest) * bytes;
}

std::size_t distinct(std::vector<std::int64_t>& values) {
  std::ranges::sort(values);
  return values.size() - std::ranges::unique(values).size();
}

/// Wavefronts of lanes that are served together: the most words of one bank.
std::size_t worst_bank(std::vector<std::int64_t>& words) {
  std::ranges::sort(words);
  const auto end = std::ranges::unique(words).begin();
  std::array<std::size_t, kBanks> used{};
  for (auto word = words.begin(); word != end; ++word) {
    ++used[static_cast<std::size_t>(*word) % kBanks];
  }
  return *std::ranges::max_element(used);
}

template <class Count>
AccessCost over_warps(const Mask& mask, Count count) {
  AccessCost cost;
  for (std::size_t warp = 0; warp < kSampledWarps; ++warp) {
    std::vector<std::size_t> lanes;
    for (std::size_t i = warp * kWarpLanes; i < (warp + 1) * kWarpLanes; ++i) {
      if (mask[i]) lanes.push_back(i);
    }
    if (lanes.empty()) continue;
    cost.requests += 1.0 / kSampledWarps;
    count(lanes, cost);
  }
  return cost;
}

}  // namespace

AccessCost global_access(const Lanes& index, const Mask& mask, std::int64_t elements,
                         std::int64_t bytes) {
  return over_warps(mask, [&](const std::vector<std::size_t>& lanes, AccessCost& cost) {
    std::vector<std::int64_t> sectors;
    std::vector<std::int64_t> lines;
    for (const std::size_t i : lanes) {
      const std::int64_t first = first_byte(index[i], bytes);
      const std::int64_t last = first + elements * bytes - 1;
      for (std::int64_t s = first / kSector; s <= last / kSector; ++s) sectors.push_back(s);
      for (std::int64_t l = first / kLine; l <= last / kLine; ++l) lines.push_back(l);
    }
    cost.passes += static_cast<double>(distinct(sectors)) / kSampledWarps;
    cost.lines += static_cast<double>(distinct(lines)) / kSampledWarps;
  });
}

AccessCost shared_access(const Lanes& index, const Mask& mask, std::int64_t elements,
                         std::int64_t bytes) {
  // 8 and 16 bytes of each lane are served for half and a quarter of the lanes at once.
  const auto phases = static_cast<std::size_t>(std::max<std::int64_t>(1, elements * bytes / 4));
  const std::size_t together = std::max<std::size_t>(1, kWarpLanes / phases);
  return over_warps(mask, [&](const std::vector<std::size_t>& lanes, AccessCost& cost) {
    for (std::size_t phase = 0; phase < kWarpLanes; phase += together) {
      std::vector<std::int64_t> words;
      for (const std::size_t i : lanes) {
        const std::size_t lane = i % kWarpLanes;
        if (lane < phase || lane >= phase + together) continue;
        const std::int64_t first = first_byte(index[i], bytes);
        for (std::int64_t w = first / kBank; w <= (first + elements * bytes - 1) / kBank; ++w) {
          words.push_back(w);
        }
      }
      cost.passes += static_cast<double>(worst_bank(words)) / kSampledWarps;
    }
  });
}

double active_warps(const Mask& mask) {
  double active = 0;
  for (std::size_t warp = 0; warp < kSampledWarps; ++warp) {
    bool any = false;
    for (std::size_t i = warp * kWarpLanes; i < (warp + 1) * kWarpLanes; ++i) any |= mask[i];
    active += any ? 1.0 / kSampledWarps : 0;
  }
  return active;
}

}  // namespace sluice::predictor
