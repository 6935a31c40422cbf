#pragma once

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/module.hpp"

namespace sluice::simgpu {

inline constexpr std::uint64_t kDefaultKernelNs = 2'000;

// The command for a kernel with arguments in either of the two forms of cuLaunchKernel.
CUresult kernel_work(const Function& function, const CUDA_KERNEL_NODE_PARAMS& kernel, Work& work);

}  // namespace sluice::simgpu
