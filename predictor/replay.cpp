#include "predictor/replay.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace sluice::predictor {

Replay replay(const Network& network, std::span<const double> seconds, std::size_t streams) {
  Replay result;
  std::vector<double> ends(network.calls.size(), 0);
  std::vector<double> free(streams, 0);
  for (std::size_t i = 0; i < network.calls.size(); ++i) {
    double ready = 0;
    for (const std::size_t earlier : network.calls[i].after) {
      if (earlier >= i) {
        throw base::UsageError("network " + network.name + ": call " + std::to_string(i) +
                               " reads the later call " + std::to_string(earlier) +
                               "; make its pack again");
      }
      ready = std::max(ready, ends[earlier]);
    }
    const auto stream = std::ranges::min_element(free);
    ends[i] = std::max(ready, *stream) + seconds[i];
    *stream = ends[i];
    result.sum += seconds[i];
    result.schedule = std::max(result.schedule, ends[i]);
  }
  return result;
}

std::vector<std::optional<Label>> fastest(const Dataset& data, std::size_t device) {
  std::vector<std::optional<Label>> best(data.tasks.size());
  for (const Label& label : data.labels) {
    if (label.query.device != device) continue;
    auto& of_task = best[data.programs[label.query.program].task];
    if (!of_task || label.seconds < of_task->seconds) of_task = label;
  }
  return best;
}

}  // namespace sluice::predictor
