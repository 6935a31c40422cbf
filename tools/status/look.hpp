#pragma once
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The session as it is now. Throws shm::NoBoard if there is no such session, also where all that
/// is left of it is a board that nobody lived to remove; else shm::BoardError.
[[nodiscard]] shm::Snapshot look_at(const std::string& session);

/// Whether the process exists, in any state.
[[nodiscard]] bool process_exists(std::uint32_t pid);

/// Where no controller lives nobody buries the dead: those clients are said to be dead whose
/// process does not exist. False if nobody else is left, nor a controller that is only silent.
[[nodiscard]] bool somebody_is_left(shm::Snapshot& snapshot, bool (*exists)(std::uint32_t pid));

}  // namespace sluice::tools
