#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fd.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/device_memory.hpp"
#include "simgpu/driver/handles.hpp"

namespace sluice::simgpu {

// What cuMemCreate makes: device memory without an address. It lives as long as a handle or a
// mapping of it.
struct PhysicalMemory {
  DeviceMemory taken;
  base::Fd file;
  std::uint64_t bytes = 0;
};

// Reserved addresses, and the physical memory that is mapped there. Thread-safe.
class VirtualMemory {
 public:
  static constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20U;  // as an H200
  static constexpr bool is_aligned(std::uint64_t bytes) {
    return bytes != 0 && bytes % kGranularity == 0;
  }

  // Makes memory with an address known to the GPU process, and forgets it. `file` has the bytes.
  struct OnGpu {
    std::function<CUresult(std::uint64_t address, std::uint64_t bytes, int file)> add;
    std::function<void(std::uint64_t address)> remove;
  };
  explicit VirtualMemory(OnGpu on_gpu) : on_gpu_(std::move(on_gpu)) {}

  CUresult reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& at);
  CUresult free(std::uint64_t at, std::uint64_t bytes);

  // bytes: aligned; those of `taken`.
  CUresult create(DeviceMemory taken, std::uint64_t bytes, CUmemGenericAllocationHandle& handle);
  CUresult release(CUmemGenericAllocationHandle handle);

  CUresult map(std::uint64_t at, std::uint64_t bytes, CUmemGenericAllocationHandle handle);
  // The range must consist of whole mappings.
  CUresult unmap(std::uint64_t at, std::uint64_t bytes);
  CUresult set_access(std::uint64_t at, std::uint64_t bytes, bool readable);

 private:
  struct Mapped {
    std::shared_ptr<PhysicalMemory> memory;
    std::uint64_t bytes = 0;
    bool accessible = false;
  };
  using Mappings = std::map<std::uint64_t, Mapped>;
  [[nodiscard]] bool is_reserved(std::uint64_t at, std::uint64_t bytes) const;
  // Whether whole mappings fill the range. `first` gets the first one.
  bool covers(std::uint64_t at, std::uint64_t bytes, Mappings::iterator& first);

  const OnGpu on_gpu_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> reserved_;
  Mappings mapped_;
  HandleTable<PhysicalMemory*, PhysicalMemory> handles_{0x56};
};

}  // namespace sluice::simgpu
