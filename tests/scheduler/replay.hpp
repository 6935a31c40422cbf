#pragma once
#include <cstdint>
#include <vector>

#include "scheduler/policy.hpp"

/// The published experiment of the request scheduler in virtual time: five models, 1000 requests.
namespace sluice::scheduler {

/// A deadline is this many times the duration of the model alone.
enum class Slo : std::uint8_t { kTwice = 2, kFourTimes = 4 };

struct Outcome {
  double mean = 0, max = 0, deviation = 0;  ///< Of latency / duration of the model alone.
  double late = 0;                          ///< Requests that missed their deadline, of 1000.
};

/// One run. lambda_ms: mean gap between two requests of a model.
[[nodiscard]] Outcome replay(Policy policy, unsigned lambda_ms, Slo slo, unsigned seed);
/// Over ten seeds.
[[nodiscard]] Outcome mean_of_replays(Policy policy, unsigned lambda_ms, Slo slo);

}  // namespace sluice::scheduler
