#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/memory/pages.hpp"
#include "engine/placement.hpp"

namespace sluice::engine {

/// Device memory that can be given back and taken again. Not thread-safe.
class Arena {
 public:
  /// Takes no device memory yet. `bytes` is rounded up to whole pages. Throws as
  /// MemoryDriver::check().
  Arena(std::shared_ptr<const DeviceContext> context, Placement placement, std::uint64_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Throws OutOfMemory, and then holds no memory; else as MemoryDriver::check().
  void take();
  /// The device must not use the memory any more.
  void give_back();

  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] bool taken() const { return taken_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// kFixed: always the same. kAnywhere: valid while taken.
  [[nodiscard]] CUdeviceptr address() const { return address_; }

 private:
  std::shared_ptr<const DeviceContext> context_;
  Placement placement_;
  std::uint64_t bytes_;
  CUdeviceptr address_ = 0;
  bool taken_ = false;
  std::optional<Pages> pages_;
};

}  // namespace sluice::engine
