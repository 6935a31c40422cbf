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
    if (!found.known || found.kind != MemoryKind::kAsync || driver().async_memory.is_freed(dptr)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t sequence = stream->last_submitted();
    driver().async_memory.free_after(dptr, [stream, sequence] {
      return stream->context->destroyed || stream->completed(sequence);
    });
    driver().async_memory.free_what_is_unused();
    return CUDA_SUCCESS;
  });
}

namespace {

// Each device has one memory pool, its default one, which keeps nothing that is unused.
constexpr std::uintptr_t kPools = 0x5600'0000;

CUresult pool_of(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (device < 0 || static_cast<std::size_t>(device) >= driver().visible.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = reinterpret_cast<CUmemoryPool>(kPools + static_cast<std::uintptr_t>(device));
  return CUDA_SUCCESS;
}

template <typename F>
CUresult with_pool(CUmemoryPool pool, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::uintptr_t device = reinterpret_cast<std::uintptr_t>(pool) - kPools;
  if (device >= driver().visible.size()) return CUDA_ERROR_INVALID_VALUE;
  driver().async_memory.free_what_is_unused();
  return call(static_cast<CUdevice>(device));
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return pool_of(pool_out, dev);
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) { return pool_of(pool, dev); }

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t /*minBytesToKeep*/) {
  return with_pool(pool, [](CUdevice) { return CUDA_SUCCESS; });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return with_pool(pool, [&](CUdevice device) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto& bytes = *static_cast<cuuint64_t*>(value);
    if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
      bytes = driver().memory.async_bytes(device);
      return CUDA_SUCCESS;
    }
    if (attr != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_NOT_SUPPORTED;
    bytes = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return with_pool(pool, [&](CUdevice device) {
    return with_context([&](Context& context) {
      // Peer access is not simulated.
      return context.device == device ? cuMemAllocAsync(dptr, bytesize, hStream)
                                      : CUDA_ERROR_NOT_SUPPORTED;
    });
  });
}
