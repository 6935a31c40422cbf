#pragma once
#include <cstdint>
#include <map>
#include <mutex>

#include "engine/memory/device_context.hpp"

namespace sluice::server {

/// What sluice_free_memory() of an engine returns. The contexts are kept, because a context takes
/// long to make, and never released: at the end of the process the driver may be gone before the
/// engine's library. Thread-safe.
[[nodiscard]] inline std::uint64_t free_memory(int gpu) {
  static std::mutex mutex;
  static auto* const contexts = new std::map<int, engine::DeviceContext>;
  const std::lock_guard lock(mutex);
  return contexts->try_emplace(gpu, engine::MemoryDriver::loaded(), gpu).first->second.free_bytes();
}

}  // namespace sluice::server
