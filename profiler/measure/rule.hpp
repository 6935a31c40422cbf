#pragma once
#include <functional>
#include <vector>

/// The rule by which every program is measured. It knows nothing of GPUs or clocks.
namespace sluice::profiler {

inline constexpr double kLeastSeconds = 0.002;  ///< A repeat lasts at least this long.
inline constexpr std::size_t kRepeats = 5;
inline constexpr double kMostSpread = 1.05;  ///< Longest over shortest repeat.
inline constexpr int kAgain = 3;             ///< Further attempts if the spread is larger.
inline constexpr int kQuietTries = 20;       ///< Attempts to get a repeat while nobody else works.

/// Seconds of a number of runs, one after the other.
struct TimedRuns {
  double seconds = 0;
  bool disturbed = false;  ///< Another client of the GPU worked meanwhile.
};
using TimeRuns = std::function<TimedRuns(std::size_t runs)>;

struct MeasuredTimes {
  std::vector<double> seconds;  ///< Of one run, by each repeat.
  double spread = 0;
  bool never_quiet = false;  ///< Another client worked during every attempt at a repeat.

  [[nodiscard]] bool disturbed() const { return never_quiet || spread > kMostSpread; }
};

/// One run to warm up; then as many runs for a repeat as last kLeastSeconds, but at most
/// `most_runs`; kRepeats repeats. If their spread is above kMostSpread, all repeats again, kAgain
/// times at most; the attempt with the least spread counts. A repeat during which another client
/// worked is repeated, kQuietTries times at most; then no further repeat is tried.
[[nodiscard]] MeasuredTimes measure_by_rule(const TimeRuns& time, std::size_t most_runs);

}  // namespace sluice::profiler
