#pragma once
#include "profiler/measure/loaded_program.hpp"
#include "profiler/records/pair_record.hpp"

namespace sluice::profiler {

/// Measures two programs on two streams of this process: each alone, one after the other, and both
/// at once. Both run as often as makes their busy times equal, at least 2 ms and at most 128
/// kernels. Five repeats, each serial and then both at once; a repeat during which another client
/// worked is repeated.
class PairTimer {
 public:
  /// The context must be current.
  PairTimer(CUdevice device, Neighbours& neighbours);

  /// Both programs must have buffers of their own. Throws as RunTimer::measure().
  [[nodiscard]] PairTimes measure(const LoadedProgram& a, const LoadedProgram& b);

 private:
  struct Repeat {
    double serial_s = 0;
    std::array<double, 2> together_s{};
    bool disturbed = false;
  };
  [[nodiscard]] Repeat repeat(const std::array<Runs, 2>& runs);

  Neighbours& neighbours_;
  Share first_share_;
  Share second_share_;
  RunTimer first_;
  RunTimer second_;
};

/// A program that runs without a break for a while.
struct SteadyRuns {
  std::size_t runs = 0;
  double seconds = 0;  ///< Of these runs.
};

/// Runs `program` from `begin_ns` on (CLOCK_MONOTONIC; 0: now) for `seconds`, and counts the runs
/// of the middle, without the first and the last batch. Throws base::RunError if that time has
/// begun already, RunTimeout, engine::ContextLost.
[[nodiscard]] SteadyRuns run_steadily(RunTimer& timer, const LoadedProgram& program,
                                      std::uint64_t begin_ns, double seconds);

}  // namespace sluice::profiler
