#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// When the requests for one model are due. Pure: no clock.
namespace sluice::server::workload {

/// A value that changes as the run goes on.
template <class Value>
struct Steps {
  std::vector<double> change_s;  ///< Ascending; seconds after the start.
  std::vector<Value> values;     ///< One more than the changes.

  [[nodiscard]] Value at(double s) const {
    const auto after = std::upper_bound(change_s.begin(), change_s.end(), s);
    return values[static_cast<std::size_t>(after - change_s.begin())];
  }
};

/// Each of the outstanding requests is followed by the next one as soon as it is answered.
struct ClosedLoop {
  Steps<std::size_t> outstanding;
  double interval_ms = 0;  ///< Pause between an answer and the next request.
};

/// The published Poisson law: every 10 ms a number of requests that is drawn from the Poisson
/// distribution, all due at the same time.
struct TickedPoisson {
  Steps<double> rate_per_s;
};

/// The law of the published request scheduler's client (base::NearPeriodicGaps).
struct NearPeriodic {
  double mean_ms;
};

/// A Poisson process.
struct Poisson {
  double mean_ms;
};

/// Due times from a file.
struct Replay {
  std::vector<std::uint64_t> due_ns;  ///< Ascending.
};

using Law = std::variant<ClosedLoop, TickedPoisson, NearPeriodic, Poisson, Replay>;

/// The requests for one model.
struct Worker {
  std::string model;
  Law law;
};

/// In a few words, for the report.
[[nodiscard]] std::string describe(const Law& law);

/// The next due time in ns after the start, never less than the last one. Nothing: no more.
using DueTimes = std::function<std::optional<std::uint64_t>()>;

/// The due times of an open loop. index: of the model, so that models do not arrive in step.
/// The law must not be a closed loop.
[[nodiscard]] DueTimes due_times(const Law& law, std::uint32_t index, std::uint32_t seed);

}  // namespace sluice::server::workload
