#pragma once
#include <cstdint>
#include <vector>

namespace sluice::runner {

/// From the start of a job to its end, CLOCK_REALTIME ns.
struct JobSpan {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
};

/// For each of `jobs`, whether it overlaps in time any of `others`, in any order. A job that starts
/// at the moment another one ends does not.
[[nodiscard]] std::vector<bool> collisions(const std::vector<JobSpan>& jobs,
                                           std::vector<JobSpan> others);

}  // namespace sluice::runner
