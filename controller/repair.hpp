#pragma once
#include <cstdint>

#include "controller/clients.hpp"

namespace sluice::controller {

/// On every heartbeat: finds dead clients, opens the gates that they held, and frees the slots of
/// processes that are gone. Never blocks.
void repair(Clients& clients, std::uint64_t now_ns);

/// Frees a slot whose client ended before it went live. Does nothing if the client has gone live in
/// the meantime.
void take_back_reserved(Clients& clients, int slot);

/// Once, on a board that an earlier controller left with living clients: keeps the living clients,
/// takes the dead ones out, and finishes every half-done change of a gate.
void adopt(Clients& clients, std::uint64_t now_ns);

/// Before the controller exits: opens every gate. The clients then find their connection closed and
/// run on ungated.
void open_all_gates(Clients& clients);

}  // namespace sluice::controller
