#include "simgpu/driver/memory.hpp"

#include <sys/prctl.h>

#include "simgpu/driver/context.hpp"
#include "simgpu/driver/shared_pages.hpp"

namespace sluice::simgpu {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

bool Memory::map_on_gpu(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset,
                        int file) {
  Request request;
  request.kind = RequestKind::kMapMemory;
  request.a = address;
  request.b = bytes;
  request.c = offset;
  return connection_.request(request, file);
}

void Memory::unmap_on_gpu(std::uint64_t address) {
  Request request;
  request.kind = RequestKind::kUnmapMemory;
  request.a = address;
  connection_.request(request);
}

bool Memory::gpu_reaches(std::uint64_t private_address) {
  // Some kernels let an unrelated process read this one only after this call.
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(connection_.gpu().gpu_pid), 0, 0, 0);
  Request request;
  request.kind = RequestKind::kReachMemory;
  request.a = private_address;
  return connection_.request(request);
}

bool Memory::overlaps(std::uint64_t address, std::uint64_t bytes) const {
  auto next = blocks_.lower_bound(address);
  if (next != blocks_.end() && next->first < address + bytes) return true;
  if (next == blocks_.begin()) return false;
  const auto& [start, block] = *std::prev(next);
  return start + block.bytes > address;
}

CUresult Memory::allocate(const Context& context, MemoryKind kind, std::size_t bytes,
                          std::uint64_t& at) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  DeviceMemory taken;
  if (is_on_device(kind)) {
    taken = DeviceMemory(connection_, device_numbers_.at(static_cast<std::size_t>(context.device)),
                         rounded);
    if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const sluice::base::Fd file = make_shared_file(rounded);
  if (!file) return CUDA_ERROR_OUT_OF_MEMORY;
  Mapping mapping(file.get(), rounded, 0);
  if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
  at = reinterpret_cast<std::uint64_t>(mapping.get());
  if (!map_on_gpu(at, rounded, 0, file.get())) return CUDA_ERROR_OUT_OF_MEMORY;
  blocks_.insert_or_assign(
      at, Block{kind, rounded, context.id, std::move(mapping), std::move(taken), context.device});
  return CUDA_SUCCESS;
}

CUresult Memory::free(MemoryKind kind, std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != kind) {
    return kind == MemoryKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                           : CUDA_ERROR_INVALID_VALUE;
  }
  unmap_on_gpu(address);
  blocks_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Memory::register_host(const Context& context, std::uint64_t address, std::size_t bytes,
                               unsigned flags) {
  const std::lock_guard lock(mutex_);
  if (address == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (overlaps(address, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const bool reads = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (!reads && !is_writable(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const SharedPages pages = find_shared_pages(address, bytes);
  // Otherwise a wait on this memory would find nothing to wait for.
  if (!pages.file && !gpu_reaches(address)) {
    return connection_.lost() ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!map_on_gpu(address, bytes, pages.offset, pages.file.get())) return CUDA_ERROR_UNKNOWN;
  blocks_.insert_or_assign(address, Block{MemoryKind::kRegistered, bytes, context.id, {}, {}, 0});
  return CUDA_SUCCESS;
}

std::uint64_t Memory::async_bytes(CUdevice device) {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [address, block] : blocks_) {
    if (block.kind == MemoryKind::kAsync && block.device == device) sum += block.bytes;
  }
  return sum;
}

void Memory::forget_context(std::uint32_t context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(blocks_, [&](const auto& entry) {
    const auto& [address, block] = entry;
    if (block.context != context) return false;
    unmap_on_gpu(address);
    return true;
  });
}

Memory::Found Memory::find(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return {};
  const auto& [start, block] = *std::prev(next);
  std::uint64_t end = start + block.bytes;
  if (address >= end) return {};
  for (; block.kind == MemoryKind::kMapped && next != blocks_.end(); ++next) {
    if (next->first != end || next->second.kind != MemoryKind::kMapped) break;
    end += next->second.bytes;
  }
  return {true, block.kind, end - address};
}

CUresult Memory::add_mapped(std::uint64_t address, std::size_t bytes, int file) {
  const std::lock_guard lock(mutex_);
  if (!map_on_gpu(address, bytes, 0, file)) return CUDA_ERROR_OUT_OF_MEMORY;
  constexpr std::uint32_t kNoContext = 0;  // outlives them all
  blocks_.insert_or_assign(address, Block{MemoryKind::kMapped, bytes, kNoContext, {}, {}, 0});
  return CUDA_SUCCESS;
}

void Memory::remove_mapped(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (blocks_.erase(address) != 0) unmap_on_gpu(address);
}

}  // namespace sluice::simgpu
