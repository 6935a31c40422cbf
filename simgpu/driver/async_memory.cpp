#include "simgpu/driver/async_memory.hpp"

namespace sluice::simgpu {

void AsyncMemory::free_after(std::uint64_t address, std::function<bool()> unused) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({address, std::move(unused)});
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
