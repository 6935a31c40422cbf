#include "tests/protocol/explorer.hpp"

namespace sluice::protocol {
namespace {

using shm::SlotInfo;
using shm::SlotState;

bool should_hold(const Memory& memory, int holder, int target) {
  const SlotInfo h = memory.info(holder);
  const SlotInfo t = memory.info(target);
  const std::uint64_t job = memory[job_word(holder)];
  return (h.state == SlotState::kLive || h.state == SlotState::kFailedOpen) && job % 2 == 1 &&
         t.state == SlotState::kLive && h.device == t.device && h.priority > t.priority &&
         memory[waived_word(target, holder)] != job;
}

/// Slots whose writers include a stopped process, which may have stopped between two steps. A
/// stopped controller may have been changing any slot.
std::uint64_t stopped_slots(const Memory& memory, const Scenario& scenario) {
  std::uint64_t slots = 0;
  for (std::size_t p = 0; p < scenario.processes.size(); ++p) {
    if (memory.life(static_cast<int>(p)) != Life::kStopped) continue;
    const int slot = scenario.processes[p].slot;
    slots |= slot < 0 ? ~std::uint64_t{0} : std::uint64_t{1} << slot;
  }
  return slots;
}

/// The fault of the bit of `holder`, or nothing. `stopped`: a writer of the bit is stopped.
std::string broken_bit(const Memory& memory, int holder, int target, bool stopped) {
  const bool holds = (memory[gate_word(target)] >> holder) % 2 == 1;
  if (holds == (holder != target && should_hold(memory, holder, target))) return {};
  const bool waived = memory[waived_word(target, holder)] == memory[job_word(holder)];
  if (stopped && !(holds && waived)) return {};
  return "bit of holder " + std::to_string(holder) + " in the gate of " + std::to_string(target) +
         (holds ? " is set and should not be" : " is missing");
}

}  // namespace

std::string broken_invariant(const Memory& memory, const Scenario& scenario, bool after_tick) {
  const std::uint64_t stopped = stopped_slots(memory, scenario);
  std::uint64_t used = 0;
  for (int slot = 0; slot < kModelSlots; ++slot) {
    if (memory.info(slot).state != SlotState::kFree) used |= std::uint64_t{1} << slot;
  }
  if (memory[kUsedWord] != used) return "used is not the set of slots that are not free";
  // The owner's next tick, or max_hold, corrects the bits that a stopped writer left.
  if (stopped != 0 && !after_tick) return {};
  for (int target = 0; target < kModelSlots; ++target) {
    const std::uint64_t gate = memory[gate_word(target)];
    const bool owner_stopped = stopped != ~std::uint64_t{0} && (stopped >> target) % 2 == 1;
    if (memory.info(target).state != SlotState::kLive && gate != 0 && !owner_stopped) {
      return "gate of " + std::to_string(target) + " is closed and its slot is not live";
    }
    if ((gate >> kModelSlots) != 0) return "foreign bits in gate of " + std::to_string(target);
    for (int holder = 0; holder < kModelSlots; ++holder) {
      const bool loose = ((stopped >> target) | (stopped >> holder)) % 2 == 1;
      std::string broken = broken_bit(memory, holder, target, loose);
      if (!broken.empty()) return broken;
    }
  }
  return {};
}

}  // namespace sluice::protocol
