#include "profiler/measure/rule.hpp"

#include <algorithm>
#include <cmath>

namespace sluice::profiler {
namespace {

TimedRuns time_quietly(const TimeRuns& time, std::size_t runs) {
  TimedRuns timed = time(runs);
  for (int i = 1; i < kQuietTries && timed.disturbed; ++i) timed = time(runs);
  return timed;
}

MeasuredTimes repeats(const TimeRuns& time, std::size_t runs) {
  MeasuredTimes times;
  for (std::size_t i = 0; i < kRepeats && !times.never_quiet; ++i) {
    const TimedRuns timed = time_quietly(time, runs);
    times.seconds.push_back(timed.seconds / static_cast<double>(runs));
    times.never_quiet = timed.disturbed;
  }
  const auto [least, most] = std::ranges::minmax_element(times.seconds);
  times.spread = *least > 0 ? *most / *least : INFINITY;
  return times;
}

}  // namespace

MeasuredTimes measure_by_rule(const TimeRuns& time, std::size_t most_runs) {
  (void)time(1);
  const double once = time_quietly(time, 1).seconds;
  const double wanted = once > 0 ? std::ceil(kLeastSeconds / once) : INFINITY;
  const auto most = static_cast<double>(most_runs);
  const auto runs = static_cast<std::size_t>(std::clamp(wanted, 1.0, most));
  MeasuredTimes best = repeats(time, runs);
  for (int i = 0; i < kAgain && best.spread > kMostSpread && !best.never_quiet; ++i) {
    MeasuredTimes again = repeats(time, runs);
    if (!again.never_quiet && again.spread < best.spread) best = std::move(again);
  }
  return best;
}

}  // namespace sluice::profiler
