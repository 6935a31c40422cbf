// The libcuda.so.1 of a driver that is too old for the interposer: it lacks most entries.
#include "intercept/driver/entries.hpp"

#define SLUICE_VISIBLE extern "C" __attribute__((visibility("default")))

SLUICE_VISIBLE CUresult cuInit(unsigned /*flags*/) { return CUDA_SUCCESS; }

SLUICE_VISIBLE CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

SLUICE_VISIBLE CUresult cuLaunchKernel(CUfunction, unsigned gx, unsigned, unsigned, unsigned,
                                       unsigned, unsigned, unsigned, CUstream, void**, void**) {
  return static_cast<CUresult>(gx);
}

SLUICE_VISIBLE CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
  return CUDA_SUCCESS;
}

SLUICE_VISIBLE CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  *graph = nullptr;
  return CUDA_SUCCESS;
}
