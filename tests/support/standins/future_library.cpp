// A library that links a launch which the interposer does not know.
#include "tests/support/standins/fakecuda/fakecuda.hpp"

extern "C" __attribute__((visibility("default"))) CUresult launch_by_call() {
  return cuLaunchFutureKernel(reinterpret_cast<CUfunction>(0x10), nullptr);
}
