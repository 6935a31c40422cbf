#pragma once

#include "base/fd.hpp"

namespace sluice::simgpu {

// A connected socket to the GPU process of the Place that the environment names. The process is
// started if none answers. Empty if that fails.
base::Fd connect_to_gpu();

}  // namespace sluice::simgpu
