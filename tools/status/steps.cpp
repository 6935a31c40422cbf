// What `sluice status` and `sluice top` say about the steps of programs that are never idle.
#include <fmt/format.h>

#include <algorithm>

#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint32_t kLeastShare = 10;  ///< In 1/1000: rarer kinds are not in the line.

std::string step_time(std::uint64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  return ms < 100 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.0f} ms", ms);
}

std::string times_of(const shm::StepsSnapshot::Kind& kind) {
  return fmt::format("{} (p99 {})", step_time(kind.p50_ns), step_time(kind.p99_ns));
}

/// A server may have a graph for each size of its batch, whose times hardly differ.
bool differ(const shm::StepsSnapshot::Kind& a, const shm::StepsSnapshot::Kind& b) {
  return std::max(a.p50_ns, b.p50_ns) > std::min(a.p50_ns, b.p50_ns) / 5 * 6;
}

std::string windows_of(const shm::StepsSnapshot& steps, std::uint64_t ended) {
  const double each =
      static_cast<double>(ended) / static_cast<double>(std::max<std::uint64_t>(steps.windows, 1));
  const std::string often =
      each < 1.5 ? std::string("in each step") : fmt::format("every {:.0f} steps", each);
  return fmt::format("gates open for {} {}: steps are {:.1f} % longer", step_time(steps.window_ns),
                     often, steps.cost / 10.0);
}

/// Of a program that has jobs, and no pauses between them.
std::string windows_of_jobs(const shm::StepsSnapshot& steps) {
  return fmt::format(
      "is never idle: gates open for {} at a time, {} in all; jobs are {:.1f} % longer",
      step_time(steps.window_ns), format_duration(steps.open_ns), steps.cost / 10.0);
}

std::string gates_in_steps(const shm::ClientSnapshot& client) {
  switch (client.steps.state) {
    case shm::StepState::kLearning:
      return "gates stay closed: learning what a step takes";
    case shm::StepState::kWindows:
      return client.steps.windows == 0 ? "gates stay closed until a step pays for a window"
                                       : windows_of(client.steps, client.steps.ended);
    case shm::StepState::kNoWindow:
      return "gates stay closed";
    case shm::StepState::kTriesOpen:
      return "tries whether closing the gates brings it anything";
    case shm::StepState::kOpen:
      return fmt::format("gates stay open: steps are only {:.1f} % longer",
                         client.steps.cost / 10.0);
    case shm::StepState::kJobs:
      return "gates seldom open: its target is of jobs, which do not end";
    case shm::StepState::kNone:
      break;
  }
  return {};
}

}  // namespace

std::string steps_note(const shm::ClientSnapshot& client) {
  const shm::StepsSnapshot& steps = client.steps;
  if (steps.state == shm::StepState::kWindows && steps.windows != 0 && steps.kinds.empty())
    return windows_of_jobs(steps);
  if (steps.state == shm::StepState::kNone || steps.kinds.empty()) return {};
  const auto& first = steps.kinds.front();
  std::string text = "steps take " + times_of(first);
  const auto other = std::find_if(
      steps.kinds.begin(), steps.kinds.end(),
      [&first](const auto& kind) { return kind.share >= kLeastShare && differ(kind, first); });
  if (other != steps.kinds.end()) {
    text += fmt::format(", {} % of them {}", other->share / 10, times_of(*other));
  }
  return text + "; " + gates_in_steps(client);
}

}  // namespace sluice::tools
