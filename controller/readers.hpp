#pragma once
#include <cstdint>

#include "controller/clients.hpp"
#include "shm/messages.hpp"

/// What the node service does on the board as the owner of the slots of readers: clients that can
/// only read the board.
namespace sluice::controller {

/// Does what the report asks for, to the slot of its sender and to nothing else: opens its gate,
/// closes it again, and shows its counters. The caller has checked that the slot is the sender's.
void take_report(Clients& clients, const shm::Report& report);

/// On every heartbeat, after the dead have been found: the tick of the watchers of readers.
void tend_readers(Clients& clients, std::uint64_t now_ns);

}  // namespace sluice::controller
