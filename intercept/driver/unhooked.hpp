#pragma once
#include <cstdint>
#include <mutex>
#include <string_view>

#include "shm/board.hpp"

namespace sluice::intercept {

/// Counts the lookups of driver entries that give the GPU work and have no hook.
class Unhooked {
 public:
  void note(std::string_view name) noexcept {
    const std::lock_guard lock(mutex_);
    ++asked_;
    name_.fill('\0');
    name.copy(name_.data(), name_.size() - 1);
  }
  void show_in(shm::Slot& slot) noexcept {
    const std::lock_guard lock(mutex_);
    slot.unhooked_name = name_;
    slot.unhooked_lookups.store(asked_);
  }

 private:
  std::mutex mutex_;
  std::uint32_t asked_ = 0;
  std::array<char, 32> name_{};
};

inline Unhooked& unhooked() noexcept {
  static constinit Unhooked all;
  return all;
}

}  // namespace sluice::intercept
