#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/memory/device_context.hpp"

namespace sluice::engine {

/// The largest page. Mapping costs time for each page, not for each byte: on an H200, 2 GiB take
/// 0.95 ms in pages of 512 MiB and 57 ms in pages of 2 MiB.
inline constexpr std::uint64_t kLargestPage = 512ULL << 20;

/// The sizes of the pages for `bytes`, a multiple of `granularity`: as few as possible.
[[nodiscard]] std::vector<std::uint64_t> page_sizes(std::uint64_t bytes, std::uint64_t granularity);

/// Physical memory of a device, mapped at a reserved address. Given back by the destructor.
class Pages {
 public:
  /// Maps `bytes`, a multiple of the granularity, from `address` on. The memory is zero. Throws
  /// OutOfMemory, and then holds nothing; else as MemoryDriver::check() does.
  Pages(std::shared_ptr<const DeviceContext> context, CUdeviceptr address, std::uint64_t bytes);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  /// The size of which each mapping must be a multiple.
  [[nodiscard]] static std::uint64_t granularity(const DeviceContext& context);

 private:
  struct Page {
    CUmemGenericAllocationHandle handle;
    std::uint64_t bytes;
    bool mapped;
  };
  void map(std::uint64_t bytes);
  void give_back();

  std::shared_ptr<const DeviceContext> context_;
  CUdeviceptr address_;
  std::vector<Page> pages_;
};

}  // namespace sluice::engine
