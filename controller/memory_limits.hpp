#pragma once
#include <cstdint>
#include <string>

#include "controller/admission.hpp"
#include "shm/board.hpp"

/// The limits of device memory that the controller writes into the slots: the smaller of what the
/// user asks for and what the site allows. The interposer of the client keeps to them.
namespace sluice::controller {

/// For a new client that asks for a limit of `asked` bytes; 0: for none. A program that asks for
/// too much gets what it may have, and a line in `notice` if that is empty.
void begin_memory_limit(shm::Slot& slot, const Terms& terms, std::uint64_t asked,
                        std::string& notice);

/// Why this peer may not give the client this limit; empty if it may.
[[nodiscard]] std::string fault_of_memory_limit(const shm::Slot& slot, const Peer& peer,
                                                const Terms& terms, std::uint64_t asked);

/// Gives a client another limit, for which there is no fault. Without a limit (0), what the site
/// allows is the limit. Returns "" or ", memory 20GiB -> none".
std::string change_memory_limit(shm::Slot& slot, const Peer& peer, const Terms& terms,
                                std::uint64_t asked);

}  // namespace sluice::controller
