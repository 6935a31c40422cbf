#include "simgpu/driver/virtual_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "simgpu/driver/shared_pages.hpp"

namespace sluice::simgpu {
namespace {

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

CUresult VirtualMemory::create(DeviceMemory taken, std::uint64_t bytes,
                               CUmemGenericAllocationHandle& handle) {
  auto made = std::make_shared<PhysicalMemory>();
  made->taken = std::move(taken);
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
    on_gpu_.remove(first->first);
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
      const CUresult status = on_gpu_.add(address, mapped.bytes, file);
      if (status != CUDA_SUCCESS) return status;
    } else {
      on_gpu_.remove(address);
      if (!hold_empty(address, mapped.bytes)) return CUDA_ERROR_UNKNOWN;
    }
    mapped.accessible = readable;
  }
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu
