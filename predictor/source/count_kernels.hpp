#pragma once
#include <vector>

#include "predictor/source/kernel_counts.hpp"
#include "profiler/packs/pack.hpp"

namespace sluice::predictor {

/// Counts each kernel of a program. A kernel that the source does not have has counts of 0.
[[nodiscard]] std::vector<KernelCounts> count_kernels(const profiler::Program& program);

}  // namespace sluice::predictor
