#include "tests/protocol/explorer.hpp"

namespace sluice::protocol {
namespace {

using shm::SlotInfo;
using shm::SlotState;

/// The life of the process that has the slot.
Life life_of(const Memory& memory, const Scenario& scenario, int slot) {
  for (std::size_t p = 0; p < scenario.processes.size(); ++p) {
    const Process& process = scenario.processes[p];
    const bool has = process.slot == slot && process.generation == memory.info(slot).generation;
    if (has) return memory.life(static_cast<int>(p));
  }
  return Life::kLives;
}

bool is_dead(Life life) { return life == Life::kFoundDead || life == Life::kGone; }

bool should_hold(const Memory& memory, const Scenario& scenario, int holder, int target) {
  const SlotInfo h = memory.info(holder);
  const SlotInfo t = memory.info(target);
  const std::uint64_t job = memory[job_word(holder)];
  return holder != target && h.state == SlotState::kLive &&
         !is_dead(life_of(memory, scenario, holder)) && job % 2 == 1 &&
         t.state == SlotState::kLive && h.device == t.device && h.priority > t.priority &&
         memory[waived_word(target, holder)] != job &&
         (memory[draining_word(target)] == 0 || (memory[draining_word(target)] & 0x80U) != 0);
}

/// Whether the controllers of the scenario live. One that is stopped may have been changing any
/// slot.
struct Controllers {
  bool stopped = false;
  bool running = false;
};
Controllers controllers(const Memory& memory, const Scenario& scenario) {
  Controllers found;
  for (std::size_t p = 0; p < scenario.processes.size(); ++p) {
    if (scenario.processes[p].slot >= 0) continue;
    const Life life = memory.life(static_cast<int>(p));
    found.stopped = found.stopped || life == Life::kStopped;
    found.running = found.running || life == Life::kLives || life == Life::kContinued;
  }
  return found;
}

/// The broker of a word is in its low byte as slot + 1, with its generation above. A dead one
/// drains nobody.
bool is_drained_by_the_dead(const Memory& memory, const Scenario& scenario, int slot) {
  const std::uint64_t broker = memory[draining_word(slot)] & ~std::uint64_t{0x80};
  for (std::size_t p = 0; p < scenario.processes.size(); ++p) {
    const Process& process = scenario.processes[p];
    const bool drains =
        process.slot >= 0 && broker == (std::uint64_t{process.generation} << 8U) +
                                           static_cast<std::uint64_t>(process.slot) + 1;
    if (drains && is_dead(memory.life(static_cast<int>(p)))) {
      return true;
    }
  }
  return false;
}

/// Whether a tick is needed: a process is stopped, or nobody has found a dead one yet.
bool needs_tick(const Memory& memory, const Scenario& scenario) {
  for (int slot = 0; slot < kModelSlots; ++slot) {
    const Life life = life_of(memory, scenario, slot);
    const SlotState state = memory.info(slot).state;
    const bool found = state == SlotState::kFree || state == SlotState::kDead;
    if (life == Life::kStopped || (is_dead(life) && !found)) return true;
    if (is_drained_by_the_dead(memory, scenario, slot)) return true;
  }
  return controllers(memory, scenario).stopped;
}

/// The fault of the gate of `target`, whose owner runs; or nothing.
std::string broken_gate(const Memory& memory, const Scenario& scenario, int target) {
  const std::uint64_t gate = memory[gate_word(target)];
  if (memory.info(target).state != SlotState::kLive && gate != 0) {
    return "gate of " + std::to_string(target) + " is closed and its slot is not live";
  }
  if ((gate >> kModelSlots) != 0) return "foreign bits in gate of " + std::to_string(target);
  const bool controller_stopped = controllers(memory, scenario).stopped;
  for (int holder = 0; holder < kModelSlots; ++holder) {
    const bool holds = (gate >> holder) % 2 == 1;
    if (holds == should_hold(memory, scenario, holder, target)) continue;
    // A stopped writer may not have set its bit yet. Its target clears what should not be set.
    const bool stopped = life_of(memory, scenario, holder) == Life::kStopped || controller_stopped;
    if (stopped && !holds) continue;
    return "bit of holder " + std::to_string(holder) + " in the gate of " + std::to_string(target) +
           (holds ? " is set and should not be" : " is missing");
  }
  return {};
}

/// A 1 that is missing costs a client its protection. The opposite only costs time, until a tick.
std::string broken_rank(const Memory& memory, const Scenario& scenario, int slot) {
  const SlotInfo own = memory.info(slot);
  bool outranked = false;
  for (int other = 0; other < kModelSlots; ++other) {
    const SlotInfo info = memory.info(other);
    const bool lives = info.state == SlotState::kReserved || info.state == SlotState::kLive;
    if (other != slot && lives && !is_dead(life_of(memory, scenario, other)) &&
        info.device == own.device && info.priority > own.priority) {
      outranked = true;
    }
  }
  if ((memory[outranked_word(slot)] != 0) == outranked) return {};
  return std::string("outranked of ") + std::to_string(slot) + " is not " + (outranked ? "1" : "0");
}

}  // namespace

std::string broken_invariant(const Memory& memory, const Scenario& scenario, bool after_tick) {
  std::uint64_t used = 0;
  for (int slot = 0; slot < kModelSlots; ++slot) {
    if (memory.info(slot).state != SlotState::kFree) used |= std::uint64_t{1} << slot;
  }
  if (memory[kUsedWord] != used) return "used is not the set of slots that are not free";
  if (!after_tick && needs_tick(memory, scenario)) return {};
  for (int slot = 0; slot < kModelSlots; ++slot) {
    // Nobody waits for the gate of a process that does not run. The controller opens that of a dead
    // one before it gives the slot to another.
    const Life life = life_of(memory, scenario, slot);
    const bool opened = is_dead(life) && controllers(memory, scenario).running;
    if (life == Life::kStopped || (is_dead(life) && !opened)) continue;
    std::string broken = broken_gate(memory, scenario, slot);
    const bool ticked = after_tick && memory.info(slot).state == SlotState::kLive;
    if (broken.empty() && ticked) broken = broken_rank(memory, scenario, slot);
    if (broken.empty() && ticked && is_drained_by_the_dead(memory, scenario, slot)) {
      broken = "slot " + std::to_string(slot) + " is drained by a dead process";
    }
    if (!broken.empty()) return broken;
  }
  return {};
}

}  // namespace sluice::protocol
