#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return with_context([&](Context& context) {
    if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Stream> stream;
    if (const CUresult status = find_stream(hStream, stream); status != CUDA_SUCCESS) return status;
    if (stream->capturing) return CUDA_ERROR_NOT_SUPPORTED;  // graphs with memory: not simulated
    driver().async_memory.free_what_is_unused();
    std::uint64_t at = 0;
    const CUresult status = driver().memory.allocate(context, MemoryKind::kAsync, bytesize, at);
    if (status == CUDA_SUCCESS) *dptr = at;
    return status;
  });
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return with_context([&](Context&) {
    std::shared_ptr<Stream> stream;
    if (const CUresult status = find_stream(hStream, stream); status != CUDA_SUCCESS) return status;
    if (stream->capturing) return CUDA_ERROR_NOT_SUPPORTED;
    const Memory::Found found = driver().memory.find(dptr);
    if (!found.known || found.kind != MemoryKind::kAsync) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t sequence = stream->last_submitted();
    driver().async_memory.free_after(dptr, [stream, sequence] {
      return stream->context->destroyed || stream->completed(sequence);
    });
    driver().async_memory.free_what_is_unused();
    return CUDA_SUCCESS;
  });
}
