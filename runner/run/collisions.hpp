#pragma once
#include <cstdint>
#include <vector>

namespace sluice::runner {

/// Start and end of a job, CLOCK_REALTIME in ns.
struct JobSpan {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
};

/// For each of `jobs`, whether it overlaps any of `others` in time. `others` may be in any order. A
/// job that starts when another one ends does not overlap it.
[[nodiscard]] std::vector<bool> collisions(const std::vector<JobSpan>& jobs,
                                           std::vector<JobSpan> others);

}  // namespace sluice::runner
