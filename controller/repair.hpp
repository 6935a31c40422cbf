#pragma once
#include <cstdint>

#include "controller/clients.hpp"

namespace sluice::controller {

/// On every heartbeat: finds clients that have died, opens what they held, and frees the slots of
/// those that are gone. Reads memory and polls; never waits.
void repair(Clients& clients, std::uint64_t now_ns);

/// Frees a slot whose client ended before it went live. Does nothing if the client has gone live in
/// the meantime.
void take_back_reserved(Clients& clients, int slot);

/// Once, on a board that an earlier controller left with living clients: keeps the living, takes
/// the dead out, and finishes whatever was half done on any gate.
void adopt(Clients& clients, std::uint64_t now_ns);

/// Before the controller leaves: no gate stays closed. The clients then find their connection
/// closed and run on ungated.
void open_all_gates(Clients& clients);

}  // namespace sluice::controller
