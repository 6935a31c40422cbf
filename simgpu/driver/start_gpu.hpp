#pragma once

#include "base/fd.hpp"

namespace sluice::simgpu {

// A connected socket to the session's GPU process; starts one when none answers. Empty: it could
// not be started.
base::Fd connect_to_gpu();

}  // namespace sluice::simgpu
