#pragma once
#include <array>
#include <vector>

#include "predictor/data/dataset.hpp"
#include "predictor/data/devices.hpp"

/// How long each part of a GPU is busy with a program, from the counts of its kernels.
namespace sluice::predictor {

/// What is busy, in the order of Times.
// clang-format off
enum Part : std::size_t {
  kIssue, kFma, kShared, kSharedWritten, kL1, kL1Lines, kLoadStore, kL2, kL2Written, kLatency,
  kLatencySyncs, kLatencyMemory, kIntegerDivision, kLocal, kInteger, kFunctions, kInstructionCache,
  kLocalMemory, kSpills, kMemory, kTimes
};
// clang-format on
using Times = std::array<double, kTimes>;

/// Seconds of each part, alone and at its peak; the kernels of the program one after the other. The
/// peaks are those of devices.csv, and per SM and clock: 4 instructions of a warp, 1 wavefront of
/// shared memory, 1 request and 1 sector of the L1 cache, 23 bytes of the L2 cache. Constants that
/// these do not give are for fit_time_model().
[[nodiscard]] Times busy_times(const Program& program, const Task& task, const DeviceInfo& device);

/// What is known of a program on a device besides its times: occupancy, waves, conflicts, the
/// counts of the kernel that is busy longest; as logarithms, base 2. Without `compiled`, the
/// registers and spilled bytes that the compiler chose are left out.
[[nodiscard]] std::vector<double> shape_of(const Program& program, const Task& task,
                                           const DeviceInfo& device, bool compiled);

/// The time of a program as the p-norm of its busy times, each times a constant, and of the launch:
/// p = 1 is one after the other, a large p all at once.
struct TimeModel {
  std::array<double, kTimes> log_factors{};
  double log_launch = 0;  ///< Of seconds.
  double log_p = 0;

  /// The logarithm of the seconds.
  [[nodiscard]] double log_seconds(const Times& times) const;
};

/// Fits the constants to measured programs; `log_seconds` of each. `seed`: of the 2,500 that are
/// read if there are more.
[[nodiscard]] TimeModel fit_time_model(const std::vector<Times>& times,
                                       const std::vector<double>& log_seconds, std::uint64_t seed);

}  // namespace sluice::predictor
