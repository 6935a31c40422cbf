#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return with_context([&](Context& context) {
    if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    pass_all_channels(context);
    std::uint64_t at = 0;
    const CUresult status = driver().memory.allocate(context, MemoryKind::kDevice, bytesize, at);
    if (status == CUDA_SUCCESS) *dptr = at;
    return status;
  });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  driver().async_memory.free_what_is_unused();
  return with_context([&](Context& context) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const DeviceMemory::Info info = driver().memory_info(context.device);
    *free = info.free_bytes;
    *total = info.total_bytes;
    return CUDA_SUCCESS;
  });
}

// Waits for the context first, as the real driver does: queued work may use the memory.
CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return with_context([&](Context& context) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    if (dptr == 0) return CUDA_SUCCESS;
    const CUresult status = drain(context);
    if (status != CUDA_SUCCESS) return status;
    driver().async_memory.free_what_is_unused();
    const Memory::Found found = driver().memory.find(dptr);
    const bool by_stream = found.known && found.kind == MemoryKind::kAsync;
    if (by_stream && driver().async_memory.is_freed(dptr)) return CUDA_ERROR_INVALID_VALUE;
    return driver().memory.free(by_stream ? MemoryKind::kAsync : MemoryKind::kDevice, dptr);
  });
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return with_context([&](Context& context) {
    if (pp == nullptr || (Flags & ~7U) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    pass_all_channels(context);
    std::uint64_t at = 0;
    const CUresult status = driver().memory.allocate(context, MemoryKind::kHost, bytesize, at);
    if (status == CUDA_SUCCESS) *pp = reinterpret_cast<void*>(at);
    return status;
  });
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemFreeHost(void* p) {
  return with_context([&](Context& context) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    if (p == nullptr) return CUDA_SUCCESS;
    const CUresult status = drain(context);
    if (status != CUDA_SUCCESS) return status;
    return driver().memory.free(MemoryKind::kHost, reinterpret_cast<std::uint64_t>(p));
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return with_context([&](Context& context) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    pass_all_channels(context);
    return driver().memory.register_host(context, reinterpret_cast<std::uint64_t>(p), bytesize,
                                         Flags);
  });
}
CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  return with_context([&](Context& context) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
    if (const CUresult status = drain(context); status != CUDA_SUCCESS) return status;
    return driver().memory.free(MemoryKind::kRegistered, reinterpret_cast<std::uint64_t>(p));
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return with_context([&](Context&) {
    const auto address = reinterpret_cast<std::uint64_t>(p);
    const Memory::Found found = driver().memory.find(address);
    if (pdptr == nullptr || Flags != 0 || !found.known || is_on_device(found.kind)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = address;
    return CUDA_SUCCESS;
  });
}
