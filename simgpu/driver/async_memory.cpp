#include "simgpu/driver/async_memory.hpp"

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

namespace sluice::simgpu {

void AsyncMemory::free_after(std::shared_ptr<Stream> stream, std::uint64_t sequence,
                             std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({std::move(stream), sequence, address});
}

void AsyncMemory::free_what_is_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [](const Pending& each) {
    if (!each.stream->context->destroyed && !each.stream->completed(each.sequence)) return false;
    driver().memory.free(MemoryKind::kAsync, each.address);
    return true;
  });
}

}  // namespace sluice::simgpu

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
    driver().async_memory.free_after(std::move(stream), sequence, dptr);
    driver().async_memory.free_what_is_unused();
    return CUDA_SUCCESS;
  });
}
