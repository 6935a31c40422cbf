#pragma once
#include "intercept/driver/cuda_driver.hpp"

namespace sluice::intercept {

/// The words that waits inside a graph look at, as addresses of the device. They stay right as long
/// as the registration of their memory: the driver refuses to launch a graph that waits on memory
/// that is no longer registered, so a graph must not outlive `context`.
struct GateWords {
  CUcontext context = nullptr;  ///< Where the memory is registered, and the waits run.
  CUdeviceptr gate = 0;         ///< Open when 0.
  CUdeviceptr slack = 0;        ///< ns.
};

}  // namespace sluice::intercept
