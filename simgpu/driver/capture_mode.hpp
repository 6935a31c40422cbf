#pragma once

#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

// The calling thread's mode; see cuThreadExchangeStreamCaptureMode.
CUstreamCaptureMode thread_capture_mode();

}  // namespace sluice::simgpu
