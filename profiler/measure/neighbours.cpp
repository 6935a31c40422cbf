#include "profiler/measure/neighbours.hpp"

#include <unistd.h>

#include "shm/gates.hpp"
#include "shm/policy.hpp"

namespace sluice::profiler {

using shm::Slot;
using shm::SlotInfo;
using shm::SlotState;

namespace {

bool lives(const Slot& slot) {
  const SlotState state = SlotInfo::unpack(slot.info.load()).state;
  return state == SlotState::kLive;
}

bool is_ours(const Slot& slot) { return slot.pid.load() == static_cast<std::uint32_t>(getpid()); }

}  // namespace

void Neighbours::refresh() {
  board_.reset();
  try {
    board_ = std::make_unique<shm::BoardMapping>(shm::BoardMapping::inspect(session_));
  } catch (const shm::BoardError&) {
    // No session, so nobody who could disturb.
  }
}

bool Neighbours::on_our_device(const Slot& slot) const {
  const auto& devices = board_->board().devices;
  return devices[SlotInfo::unpack(slot.info.load()).device].uuid == uuid_;
}

const Slot* Neighbours::own_slot() const {
  if (!board_) return nullptr;
  for (const Slot& slot : board_->board().slots) {
    if (lives(slot) && is_ours(slot) && on_our_device(slot)) return &slot;
  }
  return nullptr;
}

Neighbours::Stamp Neighbours::stamp() const {
  Stamp stamp;
  if (!board_) return stamp;
  for (const Slot& slot : board_->board().slots) {
    if (!lives(slot) || !on_our_device(slot)) continue;
    if (is_ours(slot)) {
      stamp.held_ns += slot.closed_ns.load();
      stamp.active = stamp.active || slot.gate.load() != 0;
      continue;
    }
    stamp.jobs += slot.job.load() + slot.open_job.load();
    stamp.active =
        stamp.active || shm::is_active(slot.job.load()) || shm::is_active(slot.open_job.load());
    for (const auto& entry : slot.entries) stamp.launches += entry.launches();
  }
  return stamp;
}

bool Neighbours::host_waits() const {
  const Slot* const own = own_slot();
  if (own == nullptr) return false;
  const shm::Policy policy = shm::Policy::unpack(own->policy.load());
  return policy.is_spaced() && policy.holds_on_host();
}

}  // namespace sluice::profiler
