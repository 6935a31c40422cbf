#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "simgpu/channel/mapping.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/device_memory.hpp"

namespace sluice::simgpu {

struct Context;

enum class MemoryKind {
  kDevice,      // cuMemAlloc
  kAsync,       // cuMemAllocAsync
  kMapped,      // physical device memory, mapped by cuMemMap: see virtual_memory.hpp
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
};
constexpr bool is_on_device(MemoryKind kind) {
  return kind != MemoryKind::kHost && kind != MemoryKind::kRegistered;
}

// The memory that the GPU process knows, by address. Device memory is shared memory as well; its
// address in this process is its CUdeviceptr.
class Memory {
 public:
  // device_numbers: of the GPU process, by ordinal.
  Memory(Connection& connection, const std::vector<unsigned>& device_numbers)
      : connection_(connection), device_numbers_(device_numbers) {}

  CUresult allocate(const Context& context, MemoryKind kind, std::size_t bytes, std::uint64_t& at);
  CUresult free(MemoryKind kind, std::uint64_t address);
  CUresult register_host(const Context& context, std::uint64_t address, std::size_t bytes,
                         unsigned flags);
  // Makes physical device memory known to the GPU process, and forgets it. `file` has the bytes.
  CUresult add_mapped(std::uint64_t address, std::size_t bytes, int file);
  void remove_mapped(std::uint64_t address);
  // What streams have allocated on the device with this ordinal.
  std::uint64_t async_bytes(CUdevice device);
  void forget_context(std::uint32_t context);
  // Whether the GPU process can read private memory of this process, which has a byte at the
  // address. It cannot if it belongs to another user. Makes a request.
  bool gpu_reaches(std::uint64_t private_address);

  struct Found {
    bool known = false;
    MemoryKind kind = MemoryKind::kDevice;
    // From the address to the end of its block, and of the mapped blocks right behind it.
    std::uint64_t bytes_left = 0;
  };
  Found find(std::uint64_t address);

 private:
  struct Block {
    MemoryKind kind = MemoryKind::kDevice;
    std::uint64_t bytes = 0;
    std::uint32_t context = 0;
    Mapping mapping;
    DeviceMemory taken;
    CUdevice device = 0;
  };
  bool map_on_gpu(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset, int file);
  void unmap_on_gpu(std::uint64_t address);
  [[nodiscard]] bool overlaps(std::uint64_t address, std::uint64_t bytes) const;

  Connection& connection_;
  const std::vector<unsigned>& device_numbers_;
  std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;
};

}  // namespace sluice::simgpu
