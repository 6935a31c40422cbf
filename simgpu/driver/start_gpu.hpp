#pragma once

#include "base/fd.hpp"

namespace sluice::simgpu {

// A connected socket to the session's GPU process, which is started if none answers. Empty if that
// fails.
base::Fd connect_to_gpu();

}  // namespace sluice::simgpu
