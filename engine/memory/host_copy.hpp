#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/memory/device_context.hpp"

namespace sluice::engine {

/// Page-locked host memory, from which a GPU copies asynchronously at the full speed of the bus.
class HostCopy {
 public:
  /// Throws OutOfMemory if the host has not so much memory; else as MemoryDriver::check().
  HostCopy(std::shared_ptr<const DeviceContext> context, std::size_t bytes);
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  ~HostCopy();

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::shared_ptr<const DeviceContext> context_;
  std::byte* data_ = nullptr;
  std::size_t size_;
};

/// The host copy of `key`, filled by `fill` if no model has it yet: models made from the same file
/// in the same layout share one. It ends with its last user. Thread-safe. Throws as HostCopy() and
/// `fill` do, and base::RunError if the copy of this key has another size.
[[nodiscard]] std::shared_ptr<const HostCopy> shared_host_copy(
    const std::shared_ptr<const DeviceContext>& context, const std::string& key, std::size_t bytes,
    const std::function<void(std::span<std::byte>)>& fill);

}  // namespace sluice::engine
