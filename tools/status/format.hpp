#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// For people. Commands are cut so that lines fit `columns`, from 100 on.
std::string status_text(const shm::Snapshot& snapshot, const std::string& session,
                        std::size_t columns = 100);
/// Launches per driver entry and client.
std::string coverage_text(const shm::Snapshot& snapshot, std::size_t columns = 100);
/// Everything in the snapshot, coverage included.
std::string status_json(const shm::Snapshot& snapshot, const std::string& session);

/// Why the policy in force is not the one asked for.
std::string policy_note(const shm::ClientSnapshot& client);

/// "3 us", "12 ms", "1.3 s", "4 min"
std::string format_duration(std::uint64_t ns);

}  // namespace sluice::tools
