#pragma once
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The session as it is now. Throws shm::NoBoard if there is no such session, or if all its
/// processes have died and left only a board. Throws shm::BoardError if the board cannot be read.
[[nodiscard]] shm::Snapshot look_at(const std::string& session);

/// Whether the process exists, in any state.
[[nodiscard]] bool process_exists(std::uint32_t pid);

/// Without a living controller nobody marks dead clients, so this function does: a client without a
/// process is dead. Returns false if no client and no stopped controller is left.
[[nodiscard]] bool somebody_is_left(shm::Snapshot& snapshot, bool (*exists)(std::uint32_t pid));

}  // namespace sluice::tools
