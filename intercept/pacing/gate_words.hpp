#pragma once
#include "intercept/driver/entries.hpp"

namespace sluice::intercept {

/// The device addresses of the words that waits inside a graph read. They are valid as long as the
/// registration of the memory. The driver refuses to launch a graph that waits on memory that is no
/// longer registered, so a graph must not outlive `context`.
struct GateWords {
  CUcontext context =
      nullptr;            ///< The context in which the memory is registered and the waits run.
  CUdeviceptr gate = 0;   ///< Open when 0.
  CUdeviceptr slack = 0;  ///< ns.
};

}  // namespace sluice::intercept
