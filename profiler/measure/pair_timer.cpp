#include "profiler/measure/pair_timer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"
#include "base/statistics.hpp"

namespace sluice::profiler {
namespace {

/// Both programs behind each other must fit into a stopped queue, with a wait before each launch.
constexpr std::size_t kMostLaunches = 128;
constexpr double kNsPerSecond = 1e9;
constexpr double kBatchSeconds = 0.001;
/// Two programs that begin so far apart still have most of their time in common.
constexpr std::uint64_t kLateNs = 2'000'000;

std::size_t runs_for(double busy_s, double alone_s, const LoadedProgram& program) {
  const std::size_t most = std::max<std::size_t>(1, kMostLaunches / program.kernels());
  const double wanted = alone_s > 0 ? std::round(busy_s / alone_s) : INFINITY;
  return static_cast<std::size_t>(std::clamp(wanted, 1.0, static_cast<double>(most)));
}

}  // namespace

PairTimer::PairTimer(CUdevice device, Neighbours& neighbours)
    : neighbours_(neighbours),
      first_share_(device, 0),
      second_share_(device, 0),
      first_(first_share_, neighbours),
      second_(second_share_, neighbours) {}

PairTimes PairTimer::measure(const LoadedProgram& a, const LoadedProgram& b) {
  first_.run_once(a);
  second_.run_once(b);
  first_.raise_clocks(a);
  const MeasuredTimes alone_a = first_.measure(a);
  const MeasuredTimes alone_b = second_.measure(b);
  PairTimes times;
  times.alone_s = {base::percentile(alone_a.seconds, 0.5), base::percentile(alone_b.seconds, 0.5)};
  const double busy_s = std::max(kLeastSeconds, 4 * std::max(times.alone_s[0], times.alone_s[1]));
  times.runs = {runs_for(busy_s, times.alone_s[0], a), runs_for(busy_s, times.alone_s[1], b)};
  times.disturbed = alone_a.never_quiet || alone_b.never_quiet;
  const std::array<Runs, 2> runs{Runs{a, times.runs[0]}, Runs{b, times.runs[1]}};
  std::vector<double> serial;
  std::array<std::vector<double>, 2> together;
  std::vector<double> whole;
  first_.begin_patience();
  for (std::size_t i = 0; i < kRepeats; ++i) {
    Repeat repeated = repeat(runs);
    for (int again = 1; again < kQuietTries && repeated.disturbed; ++again) repeated = repeat(runs);
    times.disturbed |= repeated.disturbed;
    serial.push_back(repeated.serial_s);
    for (const std::size_t side : {0U, 1U}) together[side].push_back(repeated.together_s[side]);
    whole.push_back(std::max(repeated.together_s[0], repeated.together_s[1]));
    if (repeated.disturbed) break;
  }
  times.serial_s = base::percentile(serial, 0.5);
  for (const std::size_t side : {0U, 1U}) {
    times.together_s[side] = base::percentile(together[side], 0.5);
  }
  const auto [least, most] = std::ranges::minmax(whole);
  times.spread = least > 0 ? most / least : INFINITY;
  return times;
}

PairTimer::Repeat PairTimer::repeat(const std::array<Runs, 2>& runs) {
  first_.wait_for_quiet();
  const auto before = neighbours_.stamp();
  Repeat repeat;
  if (first_.queue({runs[0], runs[1]})) first_.let_go();
  repeat.serial_s = first_.finish();
  const bool first_stopped = first_.queue({runs[0]});
  const bool second_stopped = [&] {
    try {
      return second_.queue({runs[1]});
    } catch (...) {
      if (first_stopped) first_.let_go();
      throw;
    }
  }();
  if (first_stopped) first_.let_go();
  if (second_stopped) second_.let_go();
  repeat.together_s = {first_.finish(), second_.finish()};
  // Two queues that could not be stopped did not begin at once.
  repeat.disturbed =
      !first_stopped || !second_stopped || Neighbours::worked_between(before, neighbours_.stamp());
  return repeat;
}

SteadyRuns run_steadily(RunTimer& timer, const LoadedProgram& program, std::uint64_t begin_ns,
                        double seconds) {
  timer.run_once(program);
  const double once_s = [&] {
    if (timer.queue({{program, 1}})) timer.let_go();
    return timer.finish();
  }();
  const std::size_t batch = runs_for(kBatchSeconds, once_s, program);
  if (begin_ns == 0) begin_ns = base::monotonic_ns();
  if (base::monotonic_ns() > begin_ns + kLateNs) {
    throw base::RunError("too late to begin with the other one");
  }
  while (base::monotonic_ns() < begin_ns) usleep(100);
  const auto end_ns = begin_ns + static_cast<std::uint64_t>(seconds * kNsPerSecond);
  SteadyRuns steady;
  std::uint64_t first_ns = 0;
  while (base::monotonic_ns() < end_ns) {
    timer.run_batch(program, batch);
    const std::uint64_t now = base::monotonic_ns();
    if (first_ns == 0) {
      first_ns = now;
    } else if (now <= end_ns) {
      steady.runs += batch;
      steady.seconds = static_cast<double>(now - first_ns) / kNsPerSecond;
    }
  }
  (void)timer.finish();
  return steady;
}

}  // namespace sluice::profiler
