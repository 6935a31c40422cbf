#include "tests/simgpu/driver_probe/probe.hpp"

#include <cstdio>

namespace sluice::simgpu::probe {

const char* const kModule = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry sluice_spin(.param .u64 ns)
{
  .reg .u64 %rd<5>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ret;
}
)";

CUcontext context;
CUmodule loaded;
CUfunction spin;
CUstream stream;
CUstream other;
CUstream blocking;
CUevent recorded;
CUevent fresh;
std::uint64_t* gate;
CUdeviceptr gate_address;

void say(const std::string& question, long answer) {
  std::printf("%s: %ld\n", question.c_str(), answer);
  std::fflush(stdout);
}

CUresult launch(CUstream on, std::uint64_t ns) {
  void* arguments[] = {&ns};
  return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, on, arguments, nullptr);
}

CUstreamCaptureStatus capture_status(CUstream of) {
  CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
  cuStreamIsCapturing(of, &found);
  return found;
}

}  // namespace sluice::simgpu::probe
