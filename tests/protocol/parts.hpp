#pragma once
#include <string>
#include <vector>

#include "tests/protocol/calls.hpp"
#include "tests/protocol/explorer.hpp"

/// The parts from which scenarios are built.
namespace sluice::protocol {

using When = std::function<bool(const World&)>;

// Calls. `slot` is the caller's own slot if the caller is a client.
Call begin_job(int slot);
Call end_job(int slot);
Call go_live(int slot);
Call keep_open(int slot);
Call leave(int slot);
/// As in a watcher that finds a holder stopped or without progress: reads its job and waives it.
Call waive(int slot, int holder);
Call honour(int slot, int holder);
/// A tick of a watcher: marks the dead among the others and corrects its own gate.
Call tend(int slot);
/// Of the broker in slot `broker`, of generation 0, about the first client of slot `target`.
Call begin_draining(int broker, int target);
Call end_draining(int broker, int target);
/// Of the owner on each tick, or of the controller.
Call rank(int slot);
Call bury(int slot);
Call release(int slot);
Call reserve(int slot, std::uint8_t priority, std::uint8_t device = 0);
/// For a reader, at priority 0.
Call reserve_reader(int slot);
/// A tick of the node service (slot -1), or of the watcher of a client that may write.
Call tend_readers(int slot);
Call change_priority(int slot, std::uint8_t priority);

/// The call, once `when` holds. once(): the call must happen. if_ever(): the actor may end without
/// it.
Call once(When when, Call call);
Call if_ever(When when, Call call);

When found_dead(int process);
When gone(int process);
/// It is stopped, or was.
When stopped(int process);
When continued(int process);
/// Actor `actor` has ended `calls` calls.
When done(int actor, int calls);

/// The controller's work for a client: bury after its death is found, release when it is gone.
std::vector<Call> repair(int process, int slot);

/// The process that has, or had, one generation of a slot.
struct Tenancy {
  int process;
  int slot;
  std::uint32_t generation = 0;
};

/// The work of a controller that adopts a board: it frees half-made slots, buries the dead and
/// settles every pair.
Call adopt(std::vector<Tenancy> tenants);

std::vector<Call> operator+(std::vector<Call> calls, const std::vector<Call>& more);

/// The later work of a controller for an adopted client: as repair(), while the slot still belongs
/// to that tenant.
std::vector<Call> repair_adopted(Tenancy tenant);

/// For Scenario::setup: makes a client live.
void attached(ModelView& board, int slot, std::uint8_t priority, std::uint8_t device = 0);

/// For Scenario::setup: makes a reader live, at priority 0.
void attached_reader(ModelView& board, int slot);

/// For Scenario::tick: one tick of the watcher of every running client, and bury() for every dead
/// slot if a controller runs, which then also makes the ticks of the readers.
void tick_all(ModelView& board, const Memory& memory, const std::vector<Process>& processes);

/// For Scenario::expect.
bool closed_by(const Memory& memory, int target, int holder);

/// Sets the scenario's tick to tick_all().
Scenario with_tick(Scenario scenario);

}  // namespace sluice::protocol
