#pragma once
#include <array>
#include <bitset>

#include "predictor/source/index_value.hpp"

namespace sluice::predictor {

/// The lanes that run a statement.
using Mask = std::bitset<kSampledWarps * kWarpLanes>;

/// What an access to memory costs a warp, as a mean.
struct AccessCost {
  double requests = 0;  ///< 1, or less where warps skip the statement.
  double passes = 0;    ///< Sectors of global memory; wavefronts of shared memory.
  double lines = 0;     ///< Of 128 bytes, of global memory.
};

/// `index`: of the first element of each lane; `elements`: that a lane accesses; `bytes`: of each.
[[nodiscard]] AccessCost global_access(const Lanes& index, const Mask& mask, std::int64_t elements,
                                       std::int64_t bytes);
[[nodiscard]] AccessCost shared_access(const Lanes& index, const Mask& mask, std::int64_t elements,
                                       std::int64_t bytes);

/// The share of the warps with a lane that runs the statement.
[[nodiscard]] double active_warps(const Mask& mask);

}  // namespace sluice::predictor
