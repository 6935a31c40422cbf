#include "simgpu/driver/async_memory.hpp"

#include <algorithm>

namespace sluice::simgpu {

void AsyncMemory::free_after(std::uint64_t address, std::function<bool()> unused) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({address, std::move(unused)});
}

bool AsyncMemory::is_freed(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  return std::any_of(pending_.begin(), pending_.end(),
                     [address](const Pending& each) { return each.address == address; });
}

void AsyncMemory::free_what_is_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [this](const Pending& each) {
    if (!each.unused()) return false;
    free_(each.address);
    return true;
  });
}

}  // namespace sluice::simgpu
