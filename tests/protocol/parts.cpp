#include "tests/protocol/parts.hpp"

#include <bit>
#include <utility>

namespace sluice::protocol {
namespace {

using shm::SlotInfo;
using shm::SlotState;

Call call(const char* name, int slot, std::function<void(ModelView&)> run) {
  return {std::string(name) + "(" + std::to_string(slot) + ")",
          [run = std::move(run)](ModelView& board, bool) {
            run(board);
            return true;
          }};
}

/// As in the watcher, before it goes live for the first time. A reader cannot.
void take_mutex(ModelView& board, int slot) {
  if (board.reader(slot).load() != 0) return;
  const SlotInfo info = SlotInfo::unpack(board.info(slot).load());
  if (info.state == SlotState::kReserved) board.mutex(slot).store(info.generation + 1U);
}

void tend_all(ModelView& board, int self) {
  const std::uint64_t used = board.used().load();
  for (int other = 0; other < kModelSlots; ++other) {
    if (other != self && (used >> other) % 2 == 1) calls::mark_dead(board, other);
  }
  calls::tend_gate(board, self);
}

bool half_made_or_dead(ModelView& board, int slot, const std::vector<Tenancy>& tenants) {
  const SlotInfo info = SlotInfo::unpack(board.info(slot).load());
  for (const Tenancy& tenant : tenants) {
    if (tenant.slot != slot || tenant.generation != info.generation) continue;
    const Life life = board.life(tenant.process);
    if (info.state == SlotState::kFree || life == Life::kGone) {
      calls::release(board, slot);
      return true;
    }
    if (life == Life::kFoundDead) calls::bury(board, slot);
    return false;
  }
  calls::release(board, slot);  // its process never started
  return true;
}

}  // namespace

Call begin_job(int slot) {
  return call("begin_job", slot, [slot](ModelView& board) { calls::begin_job(board, slot); });
}
Call end_job(int slot) {
  return call("end_job", slot, [slot](ModelView& board) { calls::end_job(board, slot); });
}
Call go_live(int slot) {
  return call("go_live", slot, [slot](ModelView& board) {
    take_mutex(board, slot);
    calls::go_live(board, slot);
  });
}
Call keep_open(int slot) {
  return call("keep_open", slot, [slot](ModelView& board) { calls::keep_open(board, slot); });
}
Call leave(int slot) {
  return call("leave", slot, [slot](ModelView& board) { calls::leave(board, slot); });
}
Call waive(int slot, int holder) {
  return call("waive", slot, [slot, holder](ModelView& board) {
    const std::uint64_t job = board.job(holder).load();
    if (job % 2 == 1) calls::waive(board, slot, holder, job);
  });
}
Call honour(int slot, int holder) {
  return call("honour", slot, [=](ModelView& board) { calls::waive(board, slot, holder, 0); });
}
Call tend(int slot) {
  return call("tend", slot, [slot](ModelView& board) { tend_all(board, slot); });
}
Call begin_draining(int broker, int target) {
  return call("begin_draining", broker, [=](ModelView& board) {
    calls::begin_draining(board, target, 0, static_cast<std::uint32_t>(broker + 1));
  });
}
Call end_draining(int broker, int target) {
  return call("end_draining", broker, [=](ModelView& board) {
    calls::end_draining(board, target, static_cast<std::uint32_t>(broker + 1));
  });
}
Call rank(int slot) {
  return call("rank", slot, [slot](ModelView& board) { calls::settle_outranked(board, slot); });
}
Call bury(int slot) {
  return call("bury", slot, [slot](ModelView& board) { calls::bury(board, slot); });
}
Call release(int slot) {
  return call("release", slot, [slot](ModelView& board) { calls::release(board, slot); });
}
Call reserve(int slot, std::uint8_t priority, std::uint8_t device) {
  return call("reserve", slot, [=](ModelView& board) {
    board.reader(slot).store(0);
    calls::reserve(board, slot, priority, device);
  });
}
Call reserve_reader(int slot) {
  return call("reserve_reader", slot, [slot](ModelView& board) {
    board.reader(slot).store(1);
    calls::reserve(board, slot, 0, 0);
  });
}
Call tend_readers(int slot) {
  return call("tend_readers", slot, [slot](ModelView& board) {
    const int self = slot < 0 ? shm::kControllerBit : slot;
    const std::uint64_t used = board.used().load();
    for (int other = 0; other < kModelSlots; ++other) {
      if (other != self && (used >> other) % 2 == 1) calls::mark_dead(board, other);
    }
    calls::tend_readers(board, self);
  });
}
Call change_priority(int slot, std::uint8_t priority) {
  return call("change_priority", slot,
              [=](ModelView& board) { calls::change_priority(board, slot, priority); });
}

Call once(When when, Call call) {
  call.when = std::move(when);
  return call;
}
Call if_ever(When when, Call call) {
  call.when = std::move(when);
  call.optional = true;
  return call;
}

When found_dead(int process) {
  return [process](const World& world) { return world.found_dead(process); };
}
When gone(int process) {
  return [process](const World& world) { return world.gone(process); };
}
When stopped(int process) {
  return [process](const World& world) {
    const Life life = world.memory.life(process);
    return life == Life::kStopped || life == Life::kContinued;
  };
}
When continued(int process) {
  return [process](const World& world) { return world.memory.life(process) == Life::kContinued; };
}
When done(int actor, int calls) {
  return [=](const World& world) { return world.done(actor, calls); };
}

std::vector<Call> repair(int process, int slot) {
  return {if_ever(found_dead(process), bury(slot)), if_ever(gone(process), release(slot))};
}

Call adopt(std::vector<Tenancy> tenants) {
  return {"adopt", [tenants = std::move(tenants)](ModelView& board, bool) {
            std::uint64_t used = board.used().load();
            for (int slot = 0; slot < kModelSlots; ++slot) {
              if ((used >> slot) % 2 == 0) continue;
              if (half_made_or_dead(board, slot, tenants)) used &= ~(std::uint64_t{1} << slot);
            }
            for (int holder = 0; holder < kModelSlots; ++holder) {
              for (int target = 0; target < kModelSlots; ++target) {
                if (holder == target || (used >> holder) % 2 == 0 || (used >> target) % 2 == 0) {
                  continue;
                }
                calls::settle(board, holder, target);
              }
            }
            return true;
          }};
}

std::vector<Call> repair_adopted(Tenancy tenant) {
  const auto guarded = [tenant](const char* name, void (*act)(ModelView&, int)) {
    return call(name, tenant.slot, [tenant, act](ModelView& board) {
      const SlotInfo info = SlotInfo::unpack(board.info(tenant.slot).load());
      const bool its = info.state != SlotState::kFree && info.generation == tenant.generation;
      if (its) act(board, tenant.slot);
    });
  };
  return {if_ever(found_dead(tenant.process), guarded("bury", calls::bury)),
          if_ever(gone(tenant.process), guarded("release", calls::release))};
}

std::vector<Call> operator+(std::vector<Call> calls, const std::vector<Call>& more) {
  calls.insert(calls.end(), more.begin(), more.end());
  return calls;
}

void attached(ModelView& board, int slot, std::uint8_t priority, std::uint8_t device) {
  calls::reserve(board, slot, priority, device);
  take_mutex(board, slot);
  calls::go_live(board, slot);
}

void attached_reader(ModelView& board, int slot) {
  board.reader(slot).store(1);
  calls::reserve(board, slot, 0, 0);
  calls::go_live(board, slot);
}

void tick_all(ModelView& board, const Memory& memory, const std::vector<Process>& processes) {
  const auto runs = [&](int slot) {
    for (std::size_t p = 0; p < processes.size(); ++p) {
      const Life life = memory.life(static_cast<int>(p));
      const bool alive = life == Life::kLives || life == Life::kContinued;
      if (processes[p].slot == slot && alive) return true;
    }
    return false;
  };
  for (int slot = 0; slot < kModelSlots; ++slot) {
    const SlotState state = memory.info(slot).state;
    if (state == SlotState::kDead && runs(-1)) calls::bury(board, slot);
    const bool reader = memory[reader_word(slot)] != 0;
    if (runs(slot) && !reader) calls::tend_readers(board, slot);
    if (!runs(reader ? -1 : slot)) continue;
    if (state == SlotState::kLeaving) {
      calls::keep_open(board, slot);
    } else if (state == SlotState::kLive) {
      tend_all(board, slot);
      calls::tend_draining(board, slot);
      calls::settle_outranked(board, slot);
    }
  }
}

bool closed_by(const Memory& memory, int target, int holder) {
  return (memory[gate_word(target)] >> holder) % 2 == 1;
}

Scenario with_tick(Scenario scenario) {
  scenario.tick = [processes = scenario.processes](ModelView& board, const Memory& memory) {
    tick_all(board, memory, processes);
  };
  return scenario;
}

}  // namespace sluice::protocol
