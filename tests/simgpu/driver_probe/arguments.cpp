// Null, unknown and malformed handles and arguments.
#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {

void handles_and_arguments() {
  float ms = 0;
  CUfunction function = nullptr;
  int value = 0;
  say("cuEventQuery(never recorded)", cuEventQuery(fresh));
  say("cuEventSynchronize(never recorded)", cuEventSynchronize(fresh));
  say("cuEventElapsedTime(never recorded)", cuEventElapsedTime(&ms, recorded, fresh));
  say("cuEventQuery(null)", cuEventQuery(nullptr));
  say("cuEventRecord(null)", cuEventRecord(nullptr, stream));
  say("cuEventDestroy(null)", cuEventDestroy(nullptr));
  say("cuStreamDestroy(null)", cuStreamDestroy(nullptr));
  say("cuStreamWaitEvent(null)", cuStreamWaitEvent(stream, nullptr, 0));
  say("cuModuleGetFunction(null module)", cuModuleGetFunction(&function, nullptr, "x"));
  say("cuModuleGetFunction(missing)", cuModuleGetFunction(&function, loaded, "missing"));
  say("cuModuleUnload(null)", cuModuleUnload(nullptr));
  say("cuLaunchKernel(null)",
      cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  say("cuLaunchKernel(empty grid)",
      cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  say("cuLaunchKernel(2048 threads)",
      cuLaunchKernel(spin, 1, 1, 1, 2048, 1, 1, 0, stream, nullptr, nullptr));
  say("cuLaunchKernel(no arguments)",
      cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  say("cuGraphDestroy(null)", cuGraphDestroy(nullptr));
  say("cuGraphExecDestroy(null)", cuGraphExecDestroy(nullptr));
  say("cuGraphLaunch(null)", cuGraphLaunch(nullptr, stream));
  say("cuMemFree(0)", cuMemFree(0));
  say("cuMemFree(unknown)", cuMemFree(4096));
  say("cuMemAlloc(0 bytes)", cuMemAlloc(&gate_address, 0));
  say("cuStreamCreate(bad flags)", cuStreamCreate(&other, 64));
  say("cuEventCreate(bad flags)", cuEventCreate(&fresh, 64));
  say("cuDeviceGet(99)", cuDeviceGet(&value, 99));
  say("cuDeviceGetAttribute(0)",
      cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
  cuEventCreate(&fresh, 0);
  cuMemHostGetDevicePointer(&gate_address, gate, 0);
}

void memory_operations() {
  const auto unregistered = reinterpret_cast<CUdeviceptr>(gate) + 4096;
  *gate = 0;
  say("wait: misaligned", cuStreamWaitValue64(stream, gate_address + 4, 0, 1));
  say("wait 32: misaligned", cuStreamWaitValue32(stream, gate_address + 2, 0, 1));
  say("wait: flags 8", cuStreamWaitValue64(stream, gate_address, 0, 8));
  say("wait: unregistered memory", cuStreamWaitValue64(stream, unregistered, 0, 1));
  say("wait: null", cuStreamWaitValue64(stream, 0, 0, 1));
  say("wait: FLUSH", cuStreamWaitValue64(stream, gate_address, 0, 1 | CU_STREAM_WAIT_VALUE_FLUSH));
  say("write: no barrier", cuStreamWriteValue64(stream, gate_address, 0, 1));
  say("write: flags 8", cuStreamWriteValue64(stream, gate_address, 0, 8));
  say("batch of 0", cuStreamBatchMemOp(stream, 0, nullptr, 0));
  say("register again", cuMemHostRegister(gate, 4096, 0));
  say("register overlapping", cuMemHostRegister(gate, 8192, 0));
  say("register 0 bytes", cuMemHostRegister(gate + 512, 0, 0));
  say("unregister unknown", cuMemHostUnregister(gate + 512));
  say("synchronise after", cuCtxSynchronize());
}

}  // namespace sluice::simgpu::probe
