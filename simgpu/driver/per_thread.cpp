// The _ptsz forms of stream calls: in them handle 0 means the calling thread's default stream. The
// _ptds forms are next to their calls in copy.cpp.
#include "simgpu/driver/stream.hpp"

using sluice::simgpu::per_thread;

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void** kernelParams, void** extra) {
  return cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                        sharedMemBytes, per_thread(hStream), kernelParams, extra);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                               void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig own = *config;
  own.hStream = per_thread(own.hStream);
  return cuLaunchKernelEx(&own, f, kernelParams, extra);
}
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX,
                                        unsigned int blockDimY, unsigned int blockDimZ,
                                        unsigned int sharedMemBytes, CUstream hStream,
                                        void** kernelParams) {
  return cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                                   sharedMemBytes, per_thread(hStream), kernelParams);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return cuMemAllocAsync(dptr, bytesize, per_thread(hStream));
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return cuMemAllocFromPoolAsync(dptr, bytesize, pool, per_thread(hStream));
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return cuMemFreeAsync(dptr, per_thread(hStream));
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                   CUstream hStream) {
  return cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, per_thread(hStream));
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream) {
  return cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, per_thread(hStream));
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream) {
  return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, per_thread(hStream));
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return cuMemcpyAsync(dst, src, ByteCount, per_thread(hStream));
}
CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return cuMemsetD8Async(dstDevice, uc, N, per_thread(hStream));
}
CUresult cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return cuMemsetD32Async(dstDevice, ui, N, per_thread(hStream));
}
CUresult cuStreamGetId_ptsz(CUstream hStream, unsigned long long* streamId) {
  return cuStreamGetId(per_thread(hStream), streamId);
}
CUresult cuStreamGetPriority_ptsz(CUstream hStream, int* priority) {
  return cuStreamGetPriority(per_thread(hStream), priority);
}
CUresult cuStreamGetFlags_ptsz(CUstream hStream, unsigned int* flags) {
  return cuStreamGetFlags(per_thread(hStream), flags);
}
CUresult cuStreamGetDevice_ptsz(CUstream hStream, CUdevice* device) {
  return cuStreamGetDevice(per_thread(hStream), device);
}
CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext* pctx) {
  return cuStreamGetCtx(per_thread(hStream), pctx);
}
CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return cuStreamWaitEvent(per_thread(hStream), hEvent, Flags);
}
CUresult cuStreamQuery_ptsz(CUstream hStream) { return cuStreamQuery(per_thread(hStream)); }
CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  return cuStreamSynchronize(per_thread(hStream));
}
CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  return cuEventRecord(hEvent, per_thread(hStream));
}
CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return cuEventRecordWithFlags(hEvent, per_thread(hStream), flags);
}

#define SLUICE_MEMORY_OPERATION(name, value_type)                                             \
  CUresult name##_ptsz(CUstream stream, CUdeviceptr addr, value_type value, unsigned flags) { \
    return name(per_thread(stream), addr, value, flags);                                      \
  }
SLUICE_MEMORY_OPERATION(cuStreamWaitValue32, cuuint32_t)
SLUICE_MEMORY_OPERATION(cuStreamWaitValue32_v2, cuuint32_t)
SLUICE_MEMORY_OPERATION(cuStreamWaitValue64, cuuint64_t)
SLUICE_MEMORY_OPERATION(cuStreamWaitValue64_v2, cuuint64_t)
SLUICE_MEMORY_OPERATION(cuStreamWriteValue32, cuuint32_t)
SLUICE_MEMORY_OPERATION(cuStreamWriteValue32_v2, cuuint32_t)
SLUICE_MEMORY_OPERATION(cuStreamWriteValue64, cuuint64_t)
SLUICE_MEMORY_OPERATION(cuStreamWriteValue64_v2, cuuint64_t)
#undef SLUICE_MEMORY_OPERATION

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count,
                                 CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return cuStreamBatchMemOp(per_thread(stream), count, paramArray, flags);
}
CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count,
                                    CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return cuStreamBatchMemOp_v2(per_thread(stream), count, paramArray, flags);
}

CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void* userData) {
  return cuLaunchHostFunc(per_thread(hStream), fn, userData);
}
CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  return cuStreamBeginCapture(per_thread(hStream));
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return cuStreamBeginCapture_v2(per_thread(hStream), mode);
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode) {
  return cuStreamBeginCaptureToGraph(per_thread(hStream), hGraph, dependencies, dependencyData,
                                     numDependencies, mode);
}
CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return cuStreamEndCapture(per_thread(hStream), phGraph);
}
CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return cuStreamIsCapturing(per_thread(hStream), captureStatus);
}
CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                     cuuint64_t* id_out) {
  return cuStreamGetCaptureInfo(per_thread(hStream), captureStatus_out, id_out);
}
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                        cuuint64_t* id_out, CUgraph* graph_out,
                                        const CUgraphNode** dependencies_out,
                                        size_t* numDependencies_out) {
  return cuStreamGetCaptureInfo_v2(per_thread(hStream), captureStatus_out, id_out, graph_out,
                                   dependencies_out, numDependencies_out);
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                        cuuint64_t* id_out, CUgraph* graph_out,
                                        const CUgraphNode** dependencies_out,
                                        const CUgraphEdgeData** edgeData_out,
                                        size_t* numDependencies_out) {
  return cuStreamGetCaptureInfo_v3(per_thread(hStream), captureStatus_out, id_out, graph_out,
                                   dependencies_out, edgeData_out, numDependencies_out);
}
CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode* dependencies,
                                                size_t numDependencies, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies(per_thread(hStream), dependencies, numDependencies,
                                           flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode* dependencies,
                                                   const CUgraphEdgeData* dependencyData,
                                                   size_t numDependencies, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(per_thread(hStream), dependencies, dependencyData,
                                              numDependencies, flags);
}
