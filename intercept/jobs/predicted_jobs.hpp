#pragma once
#include <cstdint>

#include "intercept/client/client.hpp"

namespace sluice::intercept {

/// While a job is near, the time that is left is written so often. Real ns.
inline constexpr std::uint64_t kAnnounceStepNs = 50'000;
/// Without one, the announcing thread looks so often.
inline constexpr std::uint64_t kAnnounceIdleNs = 1'000'000'000;

/// What the announcing thread does about jobs that nobody announced and that come regularly.
/// Returns when to look again, CLOCK_MONOTONIC ns.
std::uint64_t act_on_prediction(Client& client);

}  // namespace sluice::intercept
