#include "runner/run/collisions.hpp"

#include <algorithm>

namespace sluice::runner {
namespace {

/// Sorts the spans and merges overlapping ones, so that the starts and the ends are both in order.
std::vector<JobSpan> merged(std::vector<JobSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const JobSpan& a, const JobSpan& b) { return a.start_ns < b.start_ns; });
  std::vector<JobSpan> result;
  for (const JobSpan& span : spans) {
    if (!result.empty() && span.start_ns <= result.back().end_ns) {
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
    } else {
      result.push_back(span);
    }
  }
  return result;
}

}  // namespace

std::vector<bool> collisions(const std::vector<JobSpan>& jobs, std::vector<JobSpan> others) {
  const std::vector<JobSpan> busy = merged(std::move(others));
  std::vector<bool> collided;
  for (const JobSpan& job : jobs) {
    const auto first_after_start = std::upper_bound(
        busy.begin(), busy.end(), job.start_ns,
        [](std::uint64_t start, const JobSpan& span) { return start < span.end_ns; });
    collided.push_back(first_after_start != busy.end() && first_after_start->start_ns < job.end_ns);
  }
  return collided;
}

}  // namespace sluice::runner
