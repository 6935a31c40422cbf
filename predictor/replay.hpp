#pragma once
#include <optional>
#include <span>
#include <vector>

#include "predictor/data/dataset.hpp"

namespace sluice::predictor {

/// Time of a network from the times of its calls.
struct Replay {
  double sum = 0;       ///< One call after the other.
  double schedule = 0;  ///< Calls begin as soon as what they read is there and a stream is free.
};

/// `seconds`: of each call, in the order of execution. Throws base::UsageError if a call reads a
/// later one.
[[nodiscard]] Replay replay(const Network& network, std::span<const double> seconds,
                            std::size_t streams);

/// The label of the fastest measured program of each task on a device; nothing for tasks without.
[[nodiscard]] std::vector<std::optional<Label>> fastest(const Dataset& data, std::size_t device);

}  // namespace sluice::predictor
