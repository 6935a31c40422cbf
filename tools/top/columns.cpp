#include "tools/top/columns.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/top/text.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kWide = 100;      ///< From here on there is room for everything.
constexpr std::size_t kVeryWide = 120;  ///< And for the command of the holder.
constexpr std::size_t kLeastCommand = 6;

std::string state_cell(const shm::ClientSnapshot& client) {
  const std::string state = shm::state_name(client);
  if (state == "active") return state + " " + coarse_duration(client.active_ns);
  if (state == "held") return state + " " + coarse_duration(client.held_ns);
  return state;
}

std::string policy_cell(const shm::ClientSnapshot& client, std::size_t width) {
  const std::string text = client.policy + (fell_back(client) ? "*" : "");
  return text.size() <= width ? text : text.substr(0, width - 1) + "+";
}

/// The holder of the highest priority stands for all: it is the one that will hold longest.
std::string holder_cell(const shm::ClientSnapshot& client, bool with_command) {
  if (client.holders.empty()) return {};
  const shm::Holder& first = *std::max_element(
      client.holders.begin(), client.holders.end(),
      [](const shm::Holder& a, const shm::Holder& b) { return a.priority < b.priority; });
  std::string text = first.pid == 0 ? "ctrl" : std::to_string(first.pid);
  if (client.holders.size() > 1) text += "+";
  if (with_command) text += " " + first.command;
  return text;
}

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }

std::string jobs_cell(const ClientRates& rates, std::uint64_t ns) {
  return rates.jobs == 0 ? "-" : short_duration(ns);
}

std::size_t pid_width(const View& view) {
  std::size_t width = 5;  // five at least, so that the first long one does not move everything
  for (const shm::ClientSnapshot& client : view.now.clients) {
    width = std::max(width, std::to_string(client.pid).size());
  }
  return width;
}

std::size_t policy_width(const View& view, std::size_t most) {
  std::size_t width = 8;
  for (const shm::ClientSnapshot& client : view.now.clients) {
    width = std::max(width, client.policy.size() + (fell_back(client) ? 1 : 0));
  }
  return std::min(width, most);
}

std::size_t width_of(const std::vector<Column>& columns) {
  std::size_t width = 0;
  for (const Column& column : columns) width += column.width + 1;
  return width;
}

/// The first ones of `droppable` go until the command has room.
void make_room(std::vector<Column>& columns, std::size_t most,
               std::initializer_list<const char*> droppable) {
  for (const char* title : droppable) {
    if (width_of(columns) + kLeastCommand <= most) return;
    std::erase_if(columns, [title](const Column& column) { return column.title == title; });
  }
}

}  // namespace

bool fell_back(const shm::ClientSnapshot& client) {
  return client.policy != client.requested_policy && client.state != shm::SlotState::kReserved;
}

std::vector<Column> choose_columns(const View& view, std::size_t columns) {
  using C = const shm::ClientSnapshot&;
  using R = const ClientRates&;
  const bool wide = columns >= kWide;
  const bool very_wide = columns >= kVeryWide;
  const std::size_t pid = pid_width(view);
  const std::size_t policy = policy_width(view, wide ? 15 : 12);
  const std::size_t by = very_wide ? 28 : pid + 1;
  std::vector<Column> chosen{
      {"PID", pid, true, [](C c, R) { return std::to_string(c.pid); }},
      {"PRI", 3, true, [](C c, R) { return std::to_string(c.priority); }},
      {"GPU", 3, true, [](C c, R) { return std::to_string(c.device); }},
      {"POLICY", policy, false, [policy](C c, R) { return policy_cell(c, policy); }},
      {"STATE", 12, false, [](C c, R) { return state_cell(c); }},
      {"BY", by, false, [very_wide](C c, R) { return holder_cell(c, very_wide); }},
      {"HELD", 4, true, [](C, R r) { return percent(r.held_share); }},
      {"LNCH/S", 6, true, [](C, R r) { return short_number(r.launches_per_s); }},
      {"JOBS/S", 6, true, [](C, R r) { return short_number(r.jobs_per_s); }},
      {"P50", 6, true, [](C, R r) { return jobs_cell(r, r.p50_ns); }},
      {"P99", 6, true, [](C, R r) { return jobs_cell(r, r.p99_ns); }},
      {"N", 2, true, [](C, R r) { return std::to_string(r.jobs); }}};
  if (!wide && view.now.devices.size() < 2) {
    std::erase_if(chosen, [](const Column& column) { return column.title == "GPU"; });
  }
  if (!wide) std::erase_if(chosen, [](const Column& column) { return column.title == "JOBS/S"; });
  make_room(chosen, columns, {"GPU", "N", "P50", "POLICY", "LNCH/S", "HELD", "P99"});
  const std::size_t used = width_of(chosen);
  chosen.push_back(
      {"COMMAND", columns > used ? columns - used : 0, false, [](C c, R) { return c.command; }});
  return chosen;
}

}  // namespace sluice::tools
