#pragma once
#include <string>
#include <vector>

#include "tests/protocol/calls.hpp"
#include "tests/protocol/explorer.hpp"

/// What scenarios are put together from.
namespace sluice::protocol {

using When = std::function<bool(const World&)>;

// Calls. `slot` is the caller's own where it is a client.
Call begin_job(int slot);
Call end_job(int slot);
Call go_live(int slot);
Call fail_open(int slot);
Call keep_open(int slot);
Call leave(int slot);
/// max_hold as a watcher does it: looks who holds, reads its job, waives that.
Call waive(int slot, int holder);
Call bury(int slot);
Call release(int slot);
Call reserve(int slot, std::uint8_t priority, std::uint8_t device = 0);
Call change_priority(int slot, std::uint8_t priority);

/// The call, once `when` holds. `once`: it has to come; `if_ever`: the actor may end waiting.
Call once(When when, Call call);
Call if_ever(When when, Call call);

When noticed(int process);
When gone(int process);
When stopped(int process);
/// Actor `actor` has ended `calls` calls.
When done(int actor, int calls);

/// What the controller does about a client: bury when its death is noticed, release when gone.
std::vector<Call> repair(int process, int slot);

/// Which process has (or had) a slot in one of its generations.
struct Tenancy {
  int process;
  int slot;
  std::uint32_t generation = 0;
};

/// What a controller does that finds a board: frees half-made slots, buries the dead, settles
/// every pair.
Call adopt(std::vector<Tenancy> tenants);

std::vector<Call> operator+(std::vector<Call> calls, const std::vector<Call>& more);

/// What a controller goes on to do about clients it has adopted: as repair(), for the slot as long
/// as it is still that tenant's.
std::vector<Call> repair_adopted(Tenancy tenant);

/// For Scenario::setup: a client that is live.
void attached(ModelView& board, int slot, std::uint8_t priority, std::uint8_t device = 0);

/// For Scenario::tick: keep_open of every open client that runs, bury of every dead slot.
void tick_all(ModelView& board, const Memory& memory, const std::vector<Process>& processes);

/// For Scenario::expect.
bool closed_by(const Memory& memory, int target, int holder);

/// Fills in the tick.
Scenario with_tick(Scenario scenario);

}  // namespace sluice::protocol
