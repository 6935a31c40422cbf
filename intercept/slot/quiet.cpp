#include "intercept/slot/quiet.hpp"

#include <algorithm>
#include <utility>

#include "shm/gates.hpp"
#include "shm/outside_word.hpp"
#include "shm/policy.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kPrime = 0x100000001b3;  // FNV-1a

const shm::Slot& at(const shm::Board& board, int slot) noexcept {
  return board.slots[static_cast<std::size_t>(slot)];
}

std::uint64_t launches_of(const shm::Slot& slot) noexcept {
  std::uint64_t sum = 0;
  for (const shm::EntryCounters& entry : slot.entries) sum += entry.launches();
  return sum;
}

}  // namespace

bool Quiet::outside(const shm::Board& board, int slot) noexcept {
  const std::uint8_t device = shm::SlotInfo::unpack(at(board, slot).info.load()).device;
  return device < shm::kMaxDevices &&
         shm::OutsideWord::unpack(board.devices[device].outside.load()) != shm::OutsideWord{};
}

std::uint64_t Quiet::drain_ns(const shm::Slot& other) const noexcept {
  const auto policy = shm::Policy::unpack(other.policy.load());
  if (!policy.waits_on_device()) return static_cast<std::uint64_t>(kQueuedNs * time_scale_);
  const std::uint64_t longest =
      std::max(other.longest_launch_ns.load(), other.ungated_graph_ns.load());
  const std::uint64_t between = policy.spacing.is_time() ? policy.spacing.ns() : longest;
  const double ns = std::max(kDrainNs, kLongestTimes * static_cast<double>(longest + between));
  return static_cast<std::uint64_t>(ns * time_scale_);
}

/// Behind a closed gate a program may launch: its work waits there. Otherwise each launch counts.
std::optional<std::uint64_t> Quiet::look_at(int index, const shm::Slot& other,
                                            std::uint64_t now) noexcept {
  const std::uint64_t launches = launches_of(other);
  Seen& seen = seen_[static_cast<std::size_t>(index)];
  if (seen.launches != launches) seen = {launches, now};
  const bool obeys = shm::Policy::unpack(other.policy.load()).heeds_gate();
  const std::uint64_t since = other.closed_since_ns.load();
  if (obeys && other.gate.load() != 0 && since != 0) {
    if (now < since + drain_ns(other)) return std::nullopt;
    return since;
  }
  const bool idle = now > seen.changed_ns + kIdleNs;
  if (shm::has_job(other) && !idle) return std::nullopt;
  return launches * kPrime + other.job.load() + other.open_job.load();
}

std::optional<std::uint64_t> Quiet::look(const shm::Board& board, int slot,
                                         std::uint64_t now) noexcept {
  if (outside(board, slot)) return std::nullopt;
  const auto own = shm::SlotInfo::unpack(at(board, slot).info.load());
  std::uint64_t sum = 1;
  bool alone = true;
  shm::for_each_other(board.used.load(), slot, [&](int index) {
    const shm::Slot& other = at(board, index);
    const auto info = shm::SlotInfo::unpack(other.info.load());
    const bool lives =
        info.state == shm::SlotState::kLive || info.state == shm::SlotState::kLeaving;
    if (!lives || info.device != own.device) return;
    const auto state = look_at(index, other, now);
    alone = alone && state.has_value();
    sum =
        (sum ^ (std::uint64_t{info.generation} << 8U) ^ static_cast<std::uint64_t>(index)) * kPrime;
    sum = (sum ^ state.value_or(0)) * kPrime;
  });
  if (!alone) return std::nullopt;
  return sum;
}

bool Quiet::end(const shm::Board& board, int slot, std::uint64_t now) noexcept {
  const auto after = look(board, slot, now);
  const auto before = std::exchange(before_, after);
  return before && after && *before == *after;
}

}  // namespace sluice::intercept
