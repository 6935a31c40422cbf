// What `sluice status` and `sluice top` say about targets, and about who uses the GPU or waits for
// it.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/common/text.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kMostWaits = 3;  ///< Clients that a line names.
constexpr std::uint64_t kLeastNs = 1'000'000;

/// "99.4 %", and 100 % only of all.
std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  const double percent = static_cast<double>(part) * 100 / static_cast<double>(whole);
  return part == whole ? "100 %" : fmt::format("{:.1f} %", std::min(percent, 99.9));
}

/// "serve (pid 12) 3.4 s, other (pid 13) 1.0 s and 2 more"
std::string list_of(const std::vector<shm::Wait>& waits) {
  std::string text;
  for (std::size_t i = 0; i < std::min(waits.size(), kMostWaits); ++i) {
    const shm::Wait& wait = waits[i];
    const std::string pid = wait.pid == 0 ? "" : fmt::format(" (pid {})", wait.pid);
    text += fmt::format("{}{}{} {}", i == 0 ? "" : ", ", wait.name, pid, format_duration(wait.ns));
  }
  if (waits.size() > kMostWaits) text += fmt::format(" and {} more", waits.size() - kMostWaits);
  return text;
}

std::string suffered_by(const shm::ClientSnapshot& client) {
  std::vector<shm::Wait> waits = client.held_by;
  const std::uint64_t ended_ns = shm::held_by_ended_ns(client);
  // Smaller remainders come from fields that are read one after the other.
  if (ended_ns >= kLeastNs) waits.push_back({-1, 0, "clients that ended", ended_ns});
  return list_of(waits);
}

bool is_of_steps(const shm::TargetSnapshot& target) { return target.text.starts_with("step "); }

/// A target may be kept although the gates never open: the time that is left is too short.
std::string why_missed(const shm::TargetSnapshot& target, const char* what) {
  const std::string alone = format_duration(target.alone_ns);
  if (target.limit_ns == 0 || target.alone_ns > target.limit_ns) {
    return fmt::format("target cannot be kept: its {} take {} alone", what, alone);
  }
  return fmt::format("target too tight: {} take {} alone, some over {} longer", what, alone,
                     format_duration(target.limit_ns - target.alone_ns));
}

std::string step_target_warning(const shm::ClientSnapshot& client) {
  const shm::TargetSnapshot& target = client.target;
  if (client.steps.state == shm::StepState::kNone) {
    return "target of steps: it has none, because it is idle between its jobs; set one of jobs, "
           "as " +
           target.text.substr(target.text.find(' ') + 1);
  }
  if (target.state == shm::TargetState::kLearning && target.text.ends_with('x')) {
    return "target: not known yet, because too few steps ran alone, while no other program did; "
           "until then gates open as without a target";
  }
  if (target.state != shm::TargetState::kMissed || target.alone_ns == 0) return {};
  return why_missed(target, "steps") + "; gates open as without a target";
}

}  // namespace

std::string waits_note(const shm::ClientSnapshot& client) {
  const shm::WaitsSnapshot& waits = client.waits_for_gpu;
  if (waits.items == 0 || waits.waited_ns <= waits.items_ns / 1000) return {};
  const double part =
      std::min(1.0, static_cast<double>(waits.waited_ns) / static_cast<double>(waits.items_ns));
  return fmt::format("waits for the GPU for {} in each {}, {:.1f} % of it",
                     short_duration(waits.waited_ns / waits.items),
                     client.steps.ended != 0 ? "step" : "job", part * 100);
}

std::string target_note(const shm::ClientSnapshot& client) {
  const shm::TargetSnapshot& target = client.target;
  if (target.text == "none") return {};
  const bool of_steps = is_of_steps(target);
  std::string text = "target " + target.text;
  if (target.limit_ns != 0 && target.text.ends_with('x')) {
    text += fmt::format(" ({})", format_duration(target.limit_ns));
  }
  if (target.jobs == 0) return text;
  text += fmt::format(
      ": {} of {} in time", percent_of(target.kept, target.jobs),
      of_steps ? counted(target.jobs, "step", "steps") : counted(target.jobs, "job", "jobs"));
  if (target.total_ns != 0 && !of_steps) {
    const double share = static_cast<double>(target.open_ns) / static_cast<double>(target.total_ns);
    text += fmt::format("; gates open for {:.0f} % of their time", std::min(share, 1.0) * 100);
  }
  return text;
}

std::string target_warning(const shm::ClientSnapshot& client) {
  const shm::TargetSnapshot& target = client.target;
  if (target.requested != target.text && client.state != shm::SlotState::kReserved) {
    return "asked for target " + target.requested + ", which it has not taken up yet";
  }
  if (target.state == shm::TargetState::kLearning && client.priority == 0) {
    return "target: no effect at priority 0, because no program waits for its jobs";
  }
  if (is_of_steps(target)) return step_target_warning(client);
  if (target.state == shm::TargetState::kLearning) {
    return "target: learning how long its jobs take alone, while no other program runs; until then "
           "gates close at once";
  }
  if (target.state != shm::TargetState::kMissed) return {};
  return (target.alone_ns == 0 ? "target cannot be kept" : why_missed(target, "jobs")) +
         "; gates close at once, as without one";
}

std::string memory_note(const shm::MemorySnapshot& memory) {
  const bool asked = memory.limit_bytes || memory.grant_bytes || !memory.order.empty() ||
                     memory.refused_launches != 0;
  if (memory.held_bytes == 0 && !asked) return {};
  std::string text = "memory " + memory_text(memory.held_bytes);
  if (memory.grant_bytes) text += " of " + memory_text(*memory.grant_bytes) + " granted";
  if (memory.limit_bytes) text += ", limit " + memory_text(*memory.limit_bytes);
  if (memory.refused_allocations != 0) {
    text += ", " + counted(memory.refused_allocations, "allocation", "allocations") + " refused";
  }
  if (memory.base_bytes != 0 || memory.slope_bytes != 0) {
    text += fmt::format(", needs {} and {} per item", memory_text(memory.base_bytes),
                        memory_text(memory.slope_bytes));
  }
  if (memory.refused_launches != 0) {
    text += ", " + counted(memory.refused_launches, "launch", "launches") + " refused";
  }
  if (!memory.order.empty()) {
    text += fmt::format("; ordered to {} {} ago", memory.order == "epoch" ? "sleep" : memory.order,
                        format_duration(memory.order_age_ns));
  }
  return text;
}

std::vector<std::string> usage_notes(const shm::ClientSnapshot& client) {
  std::vector<std::string> lines;
  std::string labels;
  for (const auto& [key, value] : client.labels) labels += " " + key + "=" + value;
  if (!labels.empty()) lines.push_back("labels" + labels);
  if (client.gpu_ns != 0) {
    const bool bound = client.gpu_bound_ns > client.gpu_ns / 5;
    lines.push_back(fmt::format("gpu {}{} ({})", bound ? "at most " : "~",
                                format_duration(client.gpu_ns),
                                bound ? "its work was only measured next to other work"
                                      : "an estimate from learned durations"));
  }
  if (std::string note = memory_note(client.memory); !note.empty()) lines.push_back(note);
  if (const std::string by = suffered_by(client); !by.empty()) lines.push_back("waited for " + by);
  if (!client.held_others.empty()) lines.push_back("held others: " + list_of(client.held_others));
  return lines;
}

}  // namespace sluice::tools
