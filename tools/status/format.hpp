#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The session as text. Lines fit `columns`, from 80 on.
std::string status_text(const shm::Snapshot& snapshot, const std::string& session,
                        std::size_t columns = 80);
/// Launches by client and driver entry.
std::string coverage_text(const shm::Snapshot& snapshot);
/// Everything in the snapshot, with the coverage.
std::string status_json(const shm::Snapshot& snapshot, const std::string& session);

/// Why the policy in force is not the policy that was asked for.
std::string policy_note(const shm::ClientSnapshot& client);

/// The warning that a client with policy none slows the others down; empty if it does not.
std::string ungated_note(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client);

/// "3 us", "12 ms", "1.3 s", "4 min"
std::string format_duration(std::uint64_t ns);

}  // namespace sluice::tools
