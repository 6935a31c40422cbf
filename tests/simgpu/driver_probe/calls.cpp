#include <sys/mman.h>

#include "tests/simgpu/driver_probe/probe.hpp"

namespace sluice::simgpu::probe {

std::vector<Call> calls_to_try() {
  static CUdeviceptr memory = 0;
  static CUdeviceptr to_free = 0;
  static void* host = nullptr;
  static CUstream made_stream = nullptr;
  static CUevent made_event = nullptr;
  static CUmodule made_module = nullptr;
  static CUcontext current = nullptr;
  static char bytes[64];
  static CUgraphExec exec = nullptr;
  static CUgraph graph = nullptr;
  static CUgraphExec made_exec = nullptr;
  static bool ready = false;
  static CUstream end_stream = nullptr;
  static void* page = nullptr;
  if (!ready) {
    cuMemAlloc(&memory, 64);
    cuStreamCreate(&end_stream, CU_STREAM_NON_BLOCKING);
    cuStreamBeginCapture(end_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(end_stream);
    cuStreamEndCapture(end_stream, &graph);
    cuGraphInstantiate(&exec, graph, 0);
    page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ready = true;
  }
  return {
      {"cuEventQuery(recorded)", [] { return cuEventQuery(recorded); }},
      {"cuEventSynchronize(recorded)", [] { return cuEventSynchronize(recorded); }},
      {"cuEventElapsedTime",
       [] {
         float ms = 0;
         return cuEventElapsedTime(&ms, recorded, recorded);
       }},
      {"cuStreamQuery(this)", [] { return cuStreamQuery(stream); }},
      {"cuStreamQuery(other)", [] { return cuStreamQuery(other); }},
      {"cuStreamQuery(blocking)", [] { return cuStreamQuery(blocking); }},
      {"cuStreamQuery(legacy)", [] { return cuStreamQuery(nullptr); }},
      {"cuStreamSynchronize(this)", [] { return cuStreamSynchronize(stream); }},
      {"cuStreamSynchronize(other)", [] { return cuStreamSynchronize(other); }},
      {"cuStreamSynchronize(legacy)", [] { return cuStreamSynchronize(nullptr); }},
      {"cuCtxSynchronize", [] { return cuCtxSynchronize(); }},
      {"cuCtxGetCurrent", [] { return cuCtxGetCurrent(&current); }},
      {"cuMemAlloc", [] { return cuMemAlloc(&to_free, 64); }},
      {"cuMemFree", [] { return cuMemFree(to_free); }},
      {"cuMemHostAlloc", [] { return cuMemHostAlloc(&host, 64, 0); }},
      {"cuMemFreeHost", [] { return cuMemFreeHost(host); }},
      {"cuMemHostRegister", [] { return cuMemHostRegister(page, 4096, 0); }},
      {"cuMemHostUnregister", [] { return cuMemHostUnregister(page); }},
      {"cuMemHostGetDevicePointer",
       [] { return cuMemHostGetDevicePointer(&gate_address, gate, 0); }},
      {"cuMemcpyHtoD", [] { return cuMemcpyHtoD(memory, bytes, 64); }},
      {"cuMemcpyDtoH", [] { return cuMemcpyDtoH(bytes, memory, 64); }},
      {"cuMemcpyHtoDAsync(other)", [] { return cuMemcpyHtoDAsync(memory, bytes, 64, other); }},
      {"cuMemsetD8", [] { return cuMemsetD8(memory, 0, 64); }},
      {"cuStreamCreate", [] { return cuStreamCreate(&made_stream, CU_STREAM_NON_BLOCKING); }},
      {"cuStreamDestroy", [] { return cuStreamDestroy(made_stream); }},
      {"cuEventCreate", [] { return cuEventCreate(&made_event, 0); }},
      {"cuEventRecord(other)", [] { return cuEventRecord(made_event, other); }},
      {"cuEventRecord(legacy)", [] { return cuEventRecord(made_event, nullptr); }},
      {"cuEventDestroy", [] { return cuEventDestroy(made_event); }},
      {"cuModuleLoadData", [] { return cuModuleLoadData(&made_module, kModule); }},
      {"cuModuleUnload", [] { return cuModuleUnload(made_module); }},
      {"cuLaunchKernel(other)", [] { return launch(other); }},
      {"cuLaunchKernel(blocking)", [] { return launch(blocking); }},
      {"cuLaunchKernel(legacy)", [] { return launch(nullptr); }},
      {"cuGraphInstantiate", [] { return cuGraphInstantiate(&made_exec, graph, 0); }},
      {"cuGraphLaunch(other)", [] { return cuGraphLaunch(made_exec, other); }},
      {"cuGraphExecDestroy", [] { return cuGraphExecDestroy(made_exec); }},
      {"cuStreamGetId(this)",
       [] {
         unsigned long long id = 0;
         return cuStreamGetId(stream, &id);
       }},
      {"cuStreamIsCapturing(this)",
       [] {
         CUstreamCaptureStatus found;
         return cuStreamIsCapturing(stream, &found);
       }},
      {"cuStreamIsCapturing(legacy)",
       [] {
         CUstreamCaptureStatus found;
         return cuStreamIsCapturing(nullptr, &found);
       }},
  };
}

}  // namespace sluice::simgpu::probe
