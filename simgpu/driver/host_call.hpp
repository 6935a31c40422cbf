#pragma once

#include <mutex>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/connection.hpp"

namespace sluice::simgpu {

Work host_work(CUhostFn function, void* argument);

// The thread that runs host functions when the GPU process reports them due.
class HostCalls {
 public:
  explicit HostCalls(Connection& connection) : connection_(connection) {}

  // Call before the first command with a host function.
  void start();

 private:
  [[noreturn]] void serve();
  bool run_due();

  Connection& connection_;
  std::once_flag started_;
};

}  // namespace sluice::simgpu
