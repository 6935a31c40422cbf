#pragma once
#include <cstdint>

#include "controller/admission.hpp"
#include "controller/clients.hpp"

namespace sluice::controller {

/// On every heartbeat: frees the slots of processes that are gone. Marks dead clients and opens the
/// gates that they held, as their targets do themselves. Never blocks.
void repair(Clients& clients, std::uint64_t now_ns);

/// Frees a slot whose client ended before it went live. Does nothing if the client has gone live in
/// the meantime.
void take_back_reserved(Clients& clients, int slot);
/// Frees a slot of a dead client whose process lives and has another client. Does nothing to
/// others.
void take_back_dead(Clients& clients, int slot);

/// Whether a process of a board that an earlier controller left still runs.
[[nodiscard]] bool any_process_lives(const shm::Board& board);

/// Once, on a board that an earlier controller left with living clients: keeps the living clients,
/// takes the dead ones out, and finishes every half-done change of a gate. `admission` knows who
/// answers for them.
void adopt(Clients& clients, Admission& admission, std::uint64_t now_ns);

}  // namespace sluice::controller
