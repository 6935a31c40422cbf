#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

/// The order of the policy EDF. docs/reference/scheduler.md gives the reasons for the rules.
namespace sluice::scheduler::edf {

struct Waiting {
  std::uint32_t model = 0;
  std::uint64_t arrival_ns = 0;
  std::uint64_t deadline_ns = 0;  ///< kNoDeadline: none.
  std::uint64_t limit_ns = 0;
  std::uint64_t left_ns = 0;
};

struct Plan {
  std::vector<std::size_t> order;  ///< Indices of the tasks, in the order in which they run.
  std::vector<bool> met;           ///< By index: the task ends before its deadline in this order.
  std::set<std::uint32_t> behind;  ///< Models of which two or more tasks will be late.
};

/// Plans tasks that are given in the order of their insertion and can run from `start_ns` on. Tasks
/// of one model keep that order.
[[nodiscard]] Plan plan(const std::vector<Waiting>& tasks, std::uint64_t start_ns);

/// How long a request without a deadline should wait at most, in multiples of its limit: the
/// published objective.
inline constexpr std::uint64_t kPatience = 10;

}  // namespace sluice::scheduler::edf
