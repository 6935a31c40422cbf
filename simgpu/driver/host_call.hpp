#pragma once

#include <mutex>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

Work host_work(CUhostFn function, void* argument);

// The thread that runs host functions when the GPU process reports them due.
class HostCalls {
 public:
  // Call before the first command with a host function.
  void start();

 private:
  [[noreturn]] static void serve();
  static bool run_due();

  std::once_flag started_;
};

}  // namespace sluice::simgpu
