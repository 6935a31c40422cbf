#pragma once
#include <vector>

#include "predictor/source/kernel_counts.hpp"
#include "profiler/packs/pack.hpp"

namespace sluice::predictor {

/// Counts each kernel of a program. Any text takes seconds at most. Throws base::UsageError if the
/// source does not have a kernel in the form that TVM writes, or a launch is impossible.
[[nodiscard]] std::vector<KernelCounts> count_kernels(const profiler::Program& program);

}  // namespace sluice::predictor
