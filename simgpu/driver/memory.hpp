#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "simgpu/channel/mapping.hpp"
#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

struct Context;

enum class MemoryKind { kDevice, kHost, kRegistered };

inline constexpr std::uint64_t kDeviceMemoryBytes = 150'754'820'096;  // 140 GiB, as an H200

// The memory that the GPU process knows, by address. Device memory is shared memory as well; its
// address in this process is its CUdeviceptr.
class Memory {
 public:
  CUresult allocate(const Context& context, MemoryKind kind, std::size_t bytes, std::uint64_t& at);
  CUresult free(MemoryKind kind, std::uint64_t address);
  CUresult register_host(const Context& context, std::uint64_t address, std::size_t bytes);
  void forget_context(std::uint32_t context);

  struct Found {
    bool known = false;
    MemoryKind kind = MemoryKind::kDevice;
    std::uint64_t bytes_left = 0;  // from the address to the end of its block
  };
  Found find(std::uint64_t address);
  // Counts only the device memory of this process.
  std::uint64_t free_device_bytes();

 private:
  struct Block {
    MemoryKind kind = MemoryKind::kDevice;
    std::uint64_t bytes = 0;
    std::uint32_t context = 0;
    Mapping mapping;
  };
  [[nodiscard]] bool overlaps(std::uint64_t address, std::uint64_t bytes) const;

  std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t device_bytes_ = 0;
};

}  // namespace sluice::simgpu
