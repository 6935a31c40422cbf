#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sluice::scheduler {

inline constexpr std::uint64_t kNoDeadline = std::numeric_limits<std::uint64_t>::max();

/// A request, or a batch of requests, for one model. Times are ns of the caller's steady clock.
struct Task {
  std::uint64_t id = 0;     ///< Unique among the tasks of a queue.
  std::uint32_t model = 0;  ///< Tasks of one model run in the order in which they were inserted.
  std::uint64_t arrival_ns = 0;
  std::uint64_t deadline_ns = kNoDeadline;
  std::uint64_t limit_ns = 0;  ///< Duration of the whole model on an idle GPU.
  std::uint64_t whole_ns = 0;  ///< Estimated duration of a run of the whole model.
  std::vector<std::uint64_t>
      block_ns;                ///< Estimated duration of each block; empty: cannot be split.
  std::size_t next_block = 0;  ///< The first block that has not begun.
};

/// What runs next on the GPU without interruption: some consecutive blocks of a task.
struct Step {
  std::uint64_t task = 0;
  std::uint32_t model = 0;
  std::size_t first_block = 0;
  std::size_t blocks = 0;  ///< 1, or all blocks of the model if it runs whole.
  std::uint64_t expected_ns = 0;

  friend bool operator==(const Step&, const Step&) = default;
};

}  // namespace sluice::scheduler
