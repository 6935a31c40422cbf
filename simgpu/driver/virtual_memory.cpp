#include "simgpu/driver/virtual_memory.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

namespace sluice::simgpu {
namespace {

bool is_aligned(std::uint64_t bytes) {
  return bytes != 0 && bytes % VirtualMemory::kGranularity == 0;
}

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Addresses without memory: any access of the program ends it, as it ends the context on a GPU.
bool hold_empty(std::uint64_t at, std::uint64_t bytes) {
  return mmap(pointer(at), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

PhysicalMemory* as_key(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<PhysicalMemory*>(static_cast<std::uintptr_t>(handle));
}

}  // namespace

CUresult VirtualMemory::reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& at) {
  if (!is_aligned(bytes) || (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t step = std::max(alignment, kGranularity);
  void* const found =
      mmap(nullptr, bytes + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<std::uint64_t>(found);
  at = (begin + step - 1) / step * step;
  if (at != begin) munmap(found, at - begin);
  if (at + bytes != begin + bytes + step) munmap(pointer(at + bytes), begin + step - at);
  const std::lock_guard lock(mutex_);
  reserved_[at] = bytes;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::free(std::uint64_t at, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(at);
  if (found == reserved_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mapped_.lower_bound(at);
  if (mapped != mapped_.end() && mapped->first < at + bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer(at), bytes);
  reserved_.erase(found);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::create(CUdevice device, std::uint64_t bytes,
                               CUmemGenericAllocationHandle& handle) {
  if (!is_aligned(bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<PhysicalMemory>();
  made->taken = DeviceMemory(device, bytes);
  if (!made->taken) return CUDA_ERROR_OUT_OF_MEMORY;
  made->file = make_shared_file(bytes);
  if (!made->file) return CUDA_ERROR_OUT_OF_MEMORY;
  made->bytes = bytes;
  handle = reinterpret_cast<std::uintptr_t>(handles_.add(std::move(made)));
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  return handles_.take(as_key(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool VirtualMemory::is_reserved(std::uint64_t at, std::uint64_t bytes) const {
  auto next = reserved_.upper_bound(at);
  if (next == reserved_.begin()) return false;
  const auto& [start, size] = *std::prev(next);
  return at - start <= size && bytes <= size - (at - start);
}

bool VirtualMemory::covers(std::uint64_t at, std::uint64_t bytes, Mappings::iterator& first) {
  first = mapped_.find(at);
  std::uint64_t end = at;
  for (auto each = first; each != mapped_.end() && each->first == end && end < at + bytes; ++each) {
    end += each->second.bytes;
  }
  return bytes != 0 && end == at + bytes;
}

CUresult VirtualMemory::map(std::uint64_t at, std::uint64_t bytes,
                            CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<PhysicalMemory> memory = handles_.find(as_key(handle));
  if (!memory || !is_aligned(bytes) || at % kGranularity != 0 || bytes > memory->bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_reserved(at, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mapped_.lower_bound(at);
  const bool meets_next = next != mapped_.end() && next->first < at + bytes;
  const bool meets_previous =
      next != mapped_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > at;
  if (meets_next || meets_previous) return CUDA_ERROR_INVALID_VALUE;
  mapped_[at] = {std::move(memory), bytes, false};
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unmap(std::uint64_t at, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Mappings::iterator first;
  if (!covers(at, bytes, first)) return CUDA_ERROR_INVALID_VALUE;
  while (first != mapped_.end() && first->first < at + bytes) {
    driver().memory.remove_mapped(first->first);
    if (!hold_empty(first->first, first->second.bytes)) return CUDA_ERROR_UNKNOWN;
    first = mapped_.erase(first);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::set_access(std::uint64_t at, std::uint64_t bytes, bool readable) {
  const std::lock_guard lock(mutex_);
  Mappings::iterator each;
  if (!covers(at, bytes, each)) return CUDA_ERROR_INVALID_VALUE;
  for (; each != mapped_.end() && each->first < at + bytes; ++each) {
    auto& [address, mapped] = *each;
    if (mapped.accessible == readable) continue;
    if (readable) {
      const int file = mapped.memory->file.get();
      if (mmap(pointer(address), mapped.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
               0) == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      const CUresult status = driver().memory.add_mapped(address, mapped.bytes, file);
      if (status != CUDA_SUCCESS) return status;
    } else {
      driver().memory.remove_mapped(address);
      if (!hold_empty(address, mapped.bytes)) return CUDA_ERROR_UNKNOWN;
    }
    mapped.accessible = readable;
  }
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu

using namespace sluice::simgpu;

namespace {

VirtualMemory& virtual_memory() { return driver().virtual_memory; }

// These calls need no context. With one, they block while a launch of it blocks on a full queue.
template <typename F>
CUresult with_memory(F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  const std::shared_ptr<Context> context = current_context();
  if (context && !context->destroyed) context->pass_all_channels();
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
    return virtual_memory().create(prop->location.id, size, *handle);
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
