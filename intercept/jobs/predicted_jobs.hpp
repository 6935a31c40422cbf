#pragma once
#include <cstdint>

#include "intercept/client/client.hpp"

namespace sluice::intercept {

/// The interval at which the slack is written while a job is near. Real ns.
inline constexpr std::uint64_t kAnnounceStepNs = 50'000;
/// The interval at which the announcing thread looks when no job is near.
inline constexpr std::uint64_t kAnnounceIdleNs = 1'000'000'000;

/// Does what the announcing thread has to do for predicted jobs. Returns when to look again,
/// CLOCK_MONOTONIC ns.
std::uint64_t act_on_prediction(Client& client);

}  // namespace sluice::intercept
