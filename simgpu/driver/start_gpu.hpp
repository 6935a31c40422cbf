#pragma once

#include "simgpu/channel/fd.hpp"

namespace sluice::simgpu {

// A connected socket to the session's GPU process; starts one when none answers. Empty: it could
// not be started.
Fd connect_to_gpu();

}  // namespace sluice::simgpu
