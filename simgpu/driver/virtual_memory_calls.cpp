#include <utility>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

VirtualMemory& virtual_memory() { return driver().virtual_memory; }

// These calls need no context. With one, they block while a launch of it blocks on a full queue.
template <typename F>
CUresult with_memory(F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  const std::shared_ptr<Context> context = current_context();
  if (context && !context->destroyed) pass_all_channels(*context);
  return call();
}

bool is_plain(const CUmemAllocationProp* prop) {
  return prop != nullptr && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
         static_cast<std::size_t>(prop->location.id) < driver().visible.size();
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (granularity == nullptr || !is_plain(prop)) return CUDA_ERROR_INVALID_VALUE;
  *granularity = VirtualMemory::kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (ptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t at = 0;
  const CUresult status = virtual_memory().reserve(size, alignment, at);
  if (status == CUDA_SUCCESS) *ptr = at;
  return status;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  return virtual_memory().free(ptr, size);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return with_memory([&] {
    if (handle == nullptr || flags != 0 || !is_plain(prop)) return CUDA_ERROR_INVALID_VALUE;
    if (!VirtualMemory::is_aligned(size)) return CUDA_ERROR_INVALID_VALUE;
    DeviceMemory taken = driver().take_memory(prop->location.id, size);
    if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
    return virtual_memory().create(std::move(taken), size, *handle);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_memory([&] { return virtual_memory().release(handle); });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_memory([&] {
    // The driver accepts no other offset and no flag so far.
    if (offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return virtual_memory().map(ptr, size, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return with_memory([&] { return virtual_memory().unmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return with_memory([&] {
    if (desc == nullptr || count != 1) return CUDA_ERROR_INVALID_VALUE;
    return virtual_memory().set_access(ptr, size,
                                       desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  });
}
