#pragma once
#include <algorithm>
#include <cstdint>

#include "shm/board.hpp"

namespace sluice::shm {

/// For the owner, when it takes up a target: what is counted from now on is of this target.
inline void begin_target(Slot& slot) noexcept {
  slot.before_target.jobs.store(slot.target_jobs.load());
  slot.before_target.kept.store(slot.target_kept.load());
  slot.before_target.open_ns.store(slot.open_ns.load());
  slot.before_target.total_ns.store(slot.target_total_ns.load());
}

/// A counter of Slot without what had been counted before the target was set.
inline std::uint64_t of_target(const Word& counter, const Word& before) noexcept {
  const std::uint64_t counted = counter.load();
  return counted - std::min(counted, before.load());
}

}  // namespace sluice::shm
