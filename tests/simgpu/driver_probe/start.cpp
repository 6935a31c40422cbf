// From a process without cuInit to the objects that all other queries use.
#include <sys/mman.h>

#include <string>

#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {
namespace {

void ask_address(const char* name, int version, cuuint64_t flags) {
  void* function = reinterpret_cast<void*>(1);
  unsigned result = 77;  // not a value of the enumeration, to see whether the driver writes it
  const std::string question = std::string("lookup '") + name + "' " + std::to_string(version) +
                               " flags " + std::to_string(flags);
  say(question + ": status",
      cuGetProcAddress(name, &function, version, flags,
                       reinterpret_cast<CUdriverProcAddressQueryResult*>(&result)));
  say(question + ": result", result);
  say(question + ": address is null", function == nullptr);
  say(question + ": is cuGetProcAddress_v2",
      function == reinterpret_cast<void*>(&cuGetProcAddress));
  say(question + ": without a result", cuGetProcAddress(name, &function, version, flags, nullptr));
}

}  // namespace

void before_init() {
  int count = 0;
  CUcontext current = nullptr;
  CUdeviceptr memory = 0;
  const char* name = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  void* function = nullptr;
  say("before init: cuDriverGetVersion", cuDriverGetVersion(&count));
  say("before init: cuDeviceGetCount", cuDeviceGetCount(&count));
  say("before init: cuCtxGetCurrent", cuCtxGetCurrent(&current));
  say("before init: cuMemAlloc", cuMemAlloc(&memory, 16));
  say("before init: cuGetErrorName", cuGetErrorName(CUDA_ERROR_NOT_READY, &name));
  say("before init: cuStreamSynchronize(0)", cuStreamSynchronize(nullptr));
  say("before init: cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
  say("before init: cuGetProcAddress", cuGetProcAddress("cuInit", &function, 12000, 0, nullptr));
}

void lookups() {
  ask_address("cuLaunchKernel", 13000, 0);
  ask_address("cuLaunchKernel", 3000, 0);
  ask_address("cuLaunchKernel_ptsz", 13000, 0);
  ask_address("cuStreamWaitValue64_v2", 13000, 0);
  ask_address("cuNoSuchThing", 13000, 0);
  ask_address("", 13000, 0);
  ask_address("cuGetProcAddress", 11030, 0);
  ask_address("cuGetProcAddress", 12000, 0);
  ask_address("cuGetProcAddress_v2", 12000, 0);
  ask_address("cuLaunchKernel", 13000, 3);
  ask_address("cuLaunchKernel", 13000, 4);
}

void without_context() {
  CUstream made = nullptr;
  CUevent event = nullptr;
  CUdevice device = 0;
  void* host = nullptr;
  CUcontext popped = nullptr;
  unsigned long long id = 0;
  CUstreamCaptureStatus capturing;
  say("no context: cuStreamCreate", cuStreamCreate(&made, 0));
  say("no context: cuEventCreate", cuEventCreate(&event, 0));
  say("no context: cuCtxGetDevice", cuCtxGetDevice(&device));
  say("no context: cuCtxSynchronize", cuCtxSynchronize());
  say("no context: cuCtxPopCurrent", cuCtxPopCurrent(&popped));
  say("no context: cuMemHostAlloc", cuMemHostAlloc(&host, 64, 0));
  say("no context: cuStreamSynchronize(0)", cuStreamSynchronize(nullptr));
  say("no context: cuStreamGetId(0)", cuStreamGetId(nullptr, &id));
  say("no context: cuStreamIsCapturing(0)", cuStreamIsCapturing(nullptr, &capturing));
  say("no context: cuModuleLoadData", cuModuleLoadData(&loaded, kModule));
}

void set_up() {
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  say("set up: cuModuleLoadData", cuModuleLoadData(&loaded, kModule));
  cuModuleGetFunction(&spin, loaded, "sluice_spin");
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
  cuEventCreate(&recorded, 0);
  cuEventCreate(&fresh, 0);
  gate = static_cast<std::uint64_t*>(
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  say("set up: cuMemHostRegister",
      cuMemHostRegister(gate, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  cuMemHostGetDevicePointer(&gate_address, gate, 0);
  launch(stream);
  cuEventRecord(recorded, stream);
  cuCtxSynchronize();
}

}  // namespace sluice::simgpu::probe
