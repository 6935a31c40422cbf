#include "tools/top/columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "base/user_name.hpp"
#include "tools/common/text.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kWide = 100;      ///< From here on there is room for the history.
constexpr std::size_t kVeryWide = 130;  ///< From here on there is room for the holder's name.
constexpr std::size_t kLeastName = 6;
constexpr std::size_t kMostUser = 12;
constexpr std::size_t kUsualName = 16;  ///< Longer names are cut before columns disappear.

std::string state_of(const shm::ClientSnapshot& client) {
  const std::string state = state_cell(client);
  return state == "held" ? state + " " + coarse_duration(client.held_ns) : state;
}

std::string policy_cell(const shm::ClientSnapshot& client) {
  return client.policy + (fell_back(client) ? "*" : "");
}

/// Names the holder of the highest priority only: it is likely to hold longest.
std::string holder_cell(const shm::ClientSnapshot& client, bool with_name) {
  if (client.holders.empty()) return {};
  const shm::Holder& first = *std::max_element(
      client.holders.begin(), client.holders.end(),
      [](const shm::Holder& a, const shm::Holder& b) { return a.priority < b.priority; });
  std::string text = first.pid == 0 ? "ctrl" : std::to_string(first.pid);
  if (client.holders.size() > 1) text += "+";
  if (with_name) text += " " + first.name;
  return text;
}

std::string gpu_cell(const shm::ClientSnapshot& client, const ClientRates& rates) {
  if (client.gpu_ns == 0) return "-";
  const bool bound = client.gpu_bound_ns > client.gpu_ns / 5;
  return fmt::format("{}{:.0f}%", bound ? "<" : "~", std::min(rates.gpu_share, 1.0) * 100);
}

/// The share of jobs that kept the target, cut: 100 % means all.
std::string kept_cell(const shm::TargetSnapshot& target) {
  if (target.state == shm::TargetState::kLearning) return "learn";
  if (target.state == shm::TargetState::kMissed) return "missed";
  if (target.jobs == 0) return "-";
  const auto kept = static_cast<double>(target.kept) / static_cast<double>(target.jobs);
  return fmt::format("{:.1f}%", std::floor(kept * 1000) / 10);
}

std::string target_cell(const shm::ClientSnapshot& client, bool with_target) {
  if (client.target.text == "none") return {};
  return (with_target ? client.target.text + " " : "") + kept_cell(client.target);
}

/// 0 if no client has a target.
std::size_t target_width(const View& view, bool with_target) {
  std::size_t width = 0;
  for (const shm::ClientSnapshot& client : view.now.clients) {
    width = std::max(width, target_cell(client, with_target).size());
  }
  return width == 0 ? 0 : std::max<std::size_t>(width, 6);
}

std::string short_memory(std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1U << 20U);
  return mib < 1000 ? fmt::format("{:.0f}M", mib) : fmt::format("{:.1f}G", mib / 1024);
}

/// What it may hold: the smaller of its limit and a broker's grant.
std::optional<std::uint64_t> most_memory(const shm::MemorySnapshot& memory) {
  if (!memory.limit_bytes || !memory.grant_bytes) {
    return memory.limit_bytes ? memory.limit_bytes : memory.grant_bytes;
  }
  return std::min(*memory.limit_bytes, *memory.grant_bytes);
}

/// What it holds, and of how much; "!" while it has an order to obey.
std::string memory_cell(const shm::ClientSnapshot& client) {
  const shm::MemorySnapshot& memory = client.memory;
  const auto most = most_memory(memory);
  return short_memory(memory.held_bytes) + (most ? "/" + short_memory(*most) : "") +
         (memory.order.empty() ? "" : "!");
}

/// 0 if nobody limits memory.
std::size_t memory_width(const View& view) {
  const auto& clients = view.now.clients;
  const bool shared = std::any_of(clients.begin(), clients.end(), [](const auto& c) {
    return most_memory(c.memory) || !c.memory.order.empty();
  });
  std::size_t width = shared ? 3 : 0;
  for (const shm::ClientSnapshot& client : clients) {
    if (shared) width = std::max(width, memory_cell(client).size());
  }
  return width;
}

/// The users of the clients by their ids: each is looked up once for a picture.
using Users = std::map<std::uint32_t, std::string>;

std::shared_ptr<const Users> users_of(const View& view) {
  auto users = std::make_shared<Users>();
  for (const shm::ClientSnapshot& client : view.now.clients) {
    const auto [user, is_new] = users->try_emplace(client.uid);
    if (is_new) user->second = base::user_name(client.uid);
  }
  return users;
}

/// 0 if all clients belong to one user.
std::size_t user_width(const Users& users) {
  std::size_t width = 4;
  for (const auto& [uid, name] : users) width = std::max(width, columns_of(name));
  return users.size() < 2 ? 0 : std::min(width, kMostUser);
}

bool any_gpu_time(const View& view) {
  const auto& clients = view.now.clients;
  return std::any_of(clients.begin(), clients.end(), [](const auto& c) { return c.gpu_ns != 0; });
}

bool any_of_steps(const View& view) {
  const auto& clients = view.now.clients;
  return std::any_of(clients.begin(), clients.end(), of_steps);
}

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }

std::string jobs_cell(const ClientRates& rates, std::uint64_t ns) {
  return rates.jobs == 0 ? "-" : short_duration(ns);
}

/// "12s": of steps.
std::string number_cell(const shm::ClientSnapshot& client, const ClientRates& rates) {
  return std::to_string(rates.jobs) + (of_steps(client) ? "s" : "");
}

std::size_t pid_width(const View& view) {
  std::size_t width = 5;  // so that the first long pid does not move the other columns
  for (const shm::ClientSnapshot& client : view.now.clients) {
    width = std::max(width, std::to_string(client.pid).size());
  }
  return width;
}

std::size_t policy_width(const View& view) {
  std::size_t width = 8;
  for (const shm::ClientSnapshot& client : view.now.clients) {
    width = std::max(width, policy_cell(client).size());
  }
  return width;
}

std::size_t longest_name(const View& view) {
  std::size_t width = kLeastName;
  for (const shm::ClientSnapshot& client : view.now.clients) {
    width = std::max(width, columns_of(client.name));
  }
  return width;
}

std::size_t width_of(const std::vector<Column>& columns) {
  std::size_t width = 0;
  for (const Column& column : columns) width += column.width + 1;
  return width;
}

/// Removes columns, the first of `droppable` first, until a name of `name` columns has room.
void make_room(std::vector<Column>& columns, std::size_t most, std::size_t name,
               std::initializer_list<const char*> droppable) {
  for (const char* title : droppable) {
    if (width_of(columns) + name <= most) return;
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
  const std::shared_ptr<const Users> users = users_of(view);
  const std::size_t user = user_width(*users);
  const std::size_t by = very_wide ? pid + 14 : pid + 1;
  const std::size_t history = columns >= 120 ? 16 : 8;
  std::vector<Column> chosen{
      {"PID", pid, true, [](C c, R) { return std::to_string(c.pid); }},
      {"USER", user, false, [users, user](C c, R) { return shortened(users->at(c.uid), user); }},
      {"PRI", 3, true, [](C c, R) { return std::to_string(c.priority); }},
      {"GPU", 3, true, [](C c, R) { return std::to_string(c.device); }},
      {"POLICY", policy_width(view), false, [](C c, R) { return policy_cell(c); }},
      {"STATE", 12, false, [](C c, R) { return state_of(c); }},
      {"BY", by, false, [very_wide](C c, R) { return holder_cell(c, very_wide); }},
      {"HELD", 4, true, [](C, R r) { return percent(r.held_share); }},
      {"GPU%", 5, true, [](C c, R r) { return gpu_cell(c, r); }},
      {"MEM", memory_width(view), true, [](C c, R) { return memory_cell(c); }},
      {"TARGET", target_width(view, wide), false, [wide](C c, R) { return target_cell(c, wide); }},
      {"LNCH/S", 6, true, [](C, R r) { return short_number(r.launches_per_s); }},
      {"JOBS/S", 6, true, [](C, R r) { return short_number(r.jobs_per_s); }},
      {"P50", 6, true, [](C, R r) { return jobs_cell(r, r.p50_ns); }},
      {"MAX", 6, true, [](C, R r) { return jobs_cell(r, r.max_ns); }},
      {"N", any_of_steps(view) ? 3UL : 2UL, true, [](C c, R r) { return number_cell(c, r); }},
      {"HISTORY", history, false, [history](C c, R) { return sparkline(recent_ns(c), history); }}};
  std::erase_if(chosen, [&](const Column& column) {
    return (column.title == "GPU" && view.now.devices.size() < 2) ||
           (column.title == "USER" && user == 0) ||
           (column.title == "GPU%" && !any_gpu_time(view)) ||
           (column.title == "MEM" && memory_width(view) == 0) ||
           (column.title == "TARGET" && target_width(view, wide) == 0) ||
           (!wide && (column.title == "JOBS/S" || column.title == "HISTORY"));
  });
  const std::size_t name = std::min(longest_name(view), kUsualName);
  make_room(chosen, columns, name, {"HISTORY", "GPU", "N", "GPU%", "P50", "USER", "MEM", "TARGET"});
  make_room(chosen, columns, kLeastName, {"POLICY", "LNCH/S", "HELD", "MAX"});
  const std::size_t used = width_of(chosen);
  chosen.push_back(
      {"NAME", columns > used ? columns - used : 0, false, [](C c, R) { return c.name; }});
  return chosen;
}

}  // namespace sluice::tools
