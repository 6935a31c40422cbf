#pragma once
#include <cstdint>
#include <vector>

#include "scheduler/queue.hpp"

/// Tasks of the tests, and queues that run until they are empty. Times are small numbers.
namespace sluice::scheduler {

inline Task task(std::uint64_t id, std::uint32_t model, std::vector<std::uint64_t> block_ns,
                 std::uint64_t deadline_ns = kNoDeadline) {
  Task made;
  made.id = id;
  made.model = model;
  made.deadline_ns = deadline_ns;
  for (const std::uint64_t block : block_ns) made.whole_ns += block;
  made.limit_ns = made.whole_ns;
  made.block_ns = std::move(block_ns);
  return made;
}

/// The steps of a queue that gets nothing new, each as long as expected.
inline std::vector<Step> run_all(Queue& queue, std::uint64_t now = 0) {
  std::vector<Step> steps;
  while (const auto step = queue.begin(now)) {
    steps.push_back(*step);
    now += step->expected_ns;
    queue.end(step->task, now);
  }
  return steps;
}

/// The order in which the tasks of such a queue begin.
inline std::vector<std::uint64_t> order(Queue& queue, std::uint64_t now = 0) {
  std::vector<std::uint64_t> ids;
  for (const Step& step : run_all(queue, now)) {
    if (step.first_block == 0) ids.push_back(step.task);
  }
  return ids;
}

}  // namespace sluice::scheduler
