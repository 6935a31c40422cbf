#pragma once
#include <cstdint>

#include "shm/snapshot.hpp"

namespace sluice::tools {

inline constexpr std::uint64_t kMinuteNs = 60'000'000'000;

/// Whether the client has run one job for a minute, as a program with steps does, which has a job
/// without an end.
[[nodiscard]] inline bool never_idle(const shm::ClientSnapshot& client) {
  return client.state == shm::SlotState::kLive && client.active && client.active_ns >= kMinuteNs;
}

}  // namespace sluice::tools
