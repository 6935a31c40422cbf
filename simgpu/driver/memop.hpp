#pragma once

#include <cstdint>
#include <vector>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

// The commands for memory operations, with the checks of the driver.
CUresult wait_work(CUdeviceptr address, std::uint64_t value, unsigned width, unsigned flags,
                   Work& work);
CUresult write_work(CUdeviceptr address, std::uint64_t value, unsigned width, unsigned flags,
                    Work& work);
CUresult batch_works(unsigned count, const CUstreamBatchMemOpParams* operations,
                     std::vector<Work>& works);

}  // namespace sluice::simgpu
