// What `sluice status` and `sluice top` say about what the session has gained.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "base/clock.hpp"
#include "tools/common/text.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr double kHourNs = 3600e9;
constexpr std::uint64_t kLeastNs = 10'000'000'000;  ///< Before, the numbers jump.

/// "09:00", or "26 Nov 09:00" where that may be of another day.
std::string clock_text(std::uint64_t age_ns) {
  const auto when =
      static_cast<std::time_t>(base::unix_seconds() - static_cast<double>(age_ns) / 1e9);
  std::tm local{};
  localtime_r(&when, &local);
  std::array<char, 32> text{};
  const bool today = static_cast<double>(age_ns) < 20 * kHourNs;
  std::strftime(text.data(), text.size(), today ? "%H:%M" : "%d %b %H:%M", &local);
  return text.data();
}

/// Cut: 100 % means all.
std::string kept_text(const shm::Gain& gain) {
  return fmt::format("target kept {:.1f} %", std::floor((gain.jobs_kept - 1) / 10.0) / 10);
}

std::string latency_text(const shm::Gain& gain) {
  std::string text;
  if (gain.percent_of_alone != 0) {
    text = fmt::format("critical p99 {:.2f} x alone", gain.percent_of_alone / 100.0);
  } else if (gain.p99_ns != 0) {
    text = "critical p99 " + short_duration(gain.p99_ns);
  }
  if (gain.jobs_kept == 0) return text;
  return text.empty() ? "critical " + kept_text(gain) : text + " (" + kept_text(gain) + ")";
}

/// GPU time: in an hour so far, then for a day.
std::string amount(std::uint64_t ns, double age_ns) {
  if (age_ns < kHourNs) return fmt::format("~{}", format_duration(ns));
  const double hours = static_cast<double>(ns) / age_ns * 24;
  return fmt::format("~{:.{}f} GPU-hours a day", hours, hours < 10 ? 1 : 0);
}

/// What best effort has had, and whose time that was.
std::string reclaimed_text(const shm::Gain& gain, double age_ns) {
  const std::uint64_t idle_ns = std::min(gain.idle_before_ns, gain.best_effort_ns);
  const std::uint64_t beside_ns = gain.best_effort_ns - idle_ns;
  const auto matters = [&](std::uint64_t ns) { return ns > gain.best_effort_ns / 50; };
  std::string text;
  if (matters(idle_ns)) text = amount(idle_ns, age_ns) + " that were idle before";
  if (!matters(beside_ns)) return text;
  return text + (text.empty() ? "" : ", ") + amount(beside_ns, age_ns) +
         " while critical work wanted the GPU";
}

std::string use_text(const shm::Snapshot& snapshot, double age_ns) {
  const shm::Gain& gain = snapshot.gain;
  if (gain.busy_ns == 0) {
    const bool unknown = gain.best_effort_ns == shm::Gain::kUnknown;
    return unknown ? "how much of the GPU best effort uses is not known" : "";
  }
  const auto busy_ns = static_cast<double>(gain.busy_ns);
  const double busy = busy_ns * 100 / static_cast<double>(gain.shared_ns);
  std::string text = fmt::format("{} busy {}{:.0f} %", snapshot.devices.size() > 1 ? "GPUs" : "GPU",
                                 gain.measured ? "" : "~", std::min(busy, 100.0));
  if (gain.best_effort_ns == shm::Gain::kUnknown) return text + ", best effort's part is not known";
  if (gain.best_effort_ns == 0) return text + ", none of it best effort";
  const double best_effort = static_cast<double>(gain.best_effort_ns) * 100 / busy_ns;
  return text + fmt::format(", {:.0f} % of it best effort: {}", std::min(best_effort, 100.0),
                            reclaimed_text(gain, age_ns));
}

/// The text in lines of `columns` at most, broken behind commas and colons.
std::vector<std::string> broken(std::string text, std::size_t columns) {
  std::vector<std::string> lines;
  while (text.size() > columns) {
    const std::size_t comma = text.rfind(", ", columns - 1);
    const std::size_t colon = text.rfind(": ", columns - 1);
    const std::size_t at = comma == std::string::npos   ? colon
                           : colon == std::string::npos ? comma
                                                        : std::max(comma, colon);
    if (at == std::string::npos) break;
    lines.push_back(text.substr(0, at + 1));
    text.erase(0, at + 2);
  }
  lines.push_back(shortened(text, columns));
  return lines;
}

}  // namespace

bool has_gain(const shm::Snapshot& snapshot) {
  return snapshot.controller_lives && snapshot.gain.since_ns != 0 && snapshot.gain.shared_ns != 0 &&
         snapshot.gain.since_ns <= snapshot.taken_ns;
}

std::vector<std::string> gain_notes(const shm::Snapshot& snapshot, std::size_t columns) {
  const shm::Gain& gain = snapshot.gain;
  const std::uint64_t age_ns = snapshot.taken_ns - gain.since_ns;
  if (!has_gain(snapshot) || age_ns < kLeastNs) return {};
  const std::string latency = latency_text(gain);
  const std::string use = use_text(snapshot, static_cast<double>(age_ns));
  const std::string since = "since " + clock_text(age_ns) + ": ";
  if (latency.empty() && use.empty()) return {};
  return broken(since + latency + (latency.empty() || use.empty() ? "" : ", ") + use, columns);
}

}  // namespace sluice::tools
