#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kBesideCommand = 78;  ///< Columns of a line that are not a command's.
constexpr std::size_t kLeastCommand = 22;
constexpr std::size_t kHolderCommand = 40;

std::string shortened(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::string describe_controller(const shm::Snapshot& snapshot) {
  if (snapshot.controller_pid == 0) {
    return "no controller (it left): clients run ungated until one starts";
  }
  const std::string beat = format_duration(snapshot.heartbeat_age_ns);
  if (snapshot.controller_lives) {
    return fmt::format("controller pid {}, heartbeat {} ago", snapshot.controller_pid, beat);
  }
  return fmt::format(
      "controller pid {} is dead or stopped (last heartbeat {} ago): clients run ungated",
      snapshot.controller_pid, beat);
}

/// Why this client is where it is, or nothing if its state says all.
std::string explain(const shm::ClientSnapshot& client) {
  if (client.state == shm::SlotState::kFailedOpen) {
    return "runs ungated: " + client.fail_reason;
  }
  if (client.holders.empty() || client.state != shm::SlotState::kLive) return {};
  std::string text = fmt::format("held for {} by", format_duration(client.held_ns));
  for (const shm::Holder& holder : client.holders) {
    if (&holder != &client.holders.front()) text += " and";
    text += holder.pid == 0 ? std::string(" the controller")
                            : fmt::format(" pid {} (priority {}, {})", holder.pid, holder.priority,
                                          shortened(holder.command, kHolderCommand));
  }
  return text;
}

std::string command_of(const shm::ClientSnapshot& client, std::size_t columns) {
  const std::size_t width = std::max(columns, kBesideCommand + kLeastCommand) - kBesideCommand;
  return shortened(client.command, width);
}

std::string client_row(const shm::ClientSnapshot& client, std::size_t columns) {
  std::string state = shm::state_name(client);
  if (state == "active") state += " " + format_duration(client.active_ns);
  return fmt::format("{:>8} {:>4} {:>3}  {:<14} {:<13} {:>10} {:>8} {:>8}  {}\n", client.pid,
                     client.priority, client.device, client.policy, state, client.launches,
                     client.waits, format_duration(client.held_total_ns),
                     command_of(client, columns));
}

std::string remarks(const shm::ClientSnapshot& client) {
  std::string text;
  auto add = [&](const std::string& line) { text += "           " + line + "\n"; };
  if (const std::string why = explain(client); !why.empty()) add("^ " + why);
  if (client.policy != client.requested_policy && client.state != shm::SlotState::kReserved) {
    add("^ " + policy_note(client));
  }
  if (client.longest_launch_ns != 0) {
    add(fmt::format("longest launch {:.1f} ms, as learned",
                    static_cast<double>(client.longest_launch_ns) / 1e6));
  }
  if (client.unknown_launches != 0) {
    add(fmt::format("{} launches of unknown length got a wait each", client.unknown_launches));
  }
  if (client.ungated_graph_ns != 0) {
    add(fmt::format("a graph of {} holds no waits: critical jobs may wait so long",
                    format_duration(client.ungated_graph_ns)));
  }
  if (client.predictions != 0) {
    add(fmt::format("predicts its jobs: {} % of {} came, {} of closed gates each",
                    client.prediction_hits * 100 / client.predictions, client.predictions,
                    format_duration(client.prediction_cost_ns / client.predictions)));
  }
  if (client.max_hold_opened != 0) {
    add(fmt::format("^ max_hold opened its gate {} times", client.max_hold_opened));
  }
  return text;
}

std::string entry_row(const shm::EntrySnapshot& entry) {
  std::string bypassed;
  for (auto i = static_cast<std::size_t>(shm::Count::kBypassPolicyNone);
       i < static_cast<std::size_t>(shm::Count::kLaunchKinds); ++i) {
    if (entry.counts[i] == 0) continue;
    bypassed += fmt::format("{}{} {}", bypassed.empty() ? "" : ", ", entry.counts[i],
                            shm::bypass_name(static_cast<shm::Count>(i)));
  }
  return fmt::format("  {:<31} {:>9} {:>9} {:>8} {:>8} {:>7}  {}\n", entry.name, entry.launches,
                     entry.count(shm::Count::kGated), entry.count(shm::Count::kCaptured),
                     entry.count(shm::Count::kWaited),
                     format_duration(entry.count(shm::Count::kHeldNs)),
                     bypassed.empty() ? "-" : bypassed);
}

}  // namespace

std::string format_duration(std::uint64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns == 0) return "0";
  if (value < 1e6) return fmt::format("{:.0f} us", value / 1e3);
  if (value < 1e9) return fmt::format("{:.0f} ms", value / 1e6);
  if (value < 100e9) return fmt::format("{:.1f} s", value / 1e9);
  return fmt::format("{:.0f} min", value / 60e9);
}

std::string policy_note(const shm::ClientSnapshot& client) {
  const bool device = client.requested_policy.starts_with("device");
  return fmt::format("asked for policy {}, which {}", client.requested_policy,
                     device ? "its device cannot do" : "it has not taken up yet");
}

std::string status_text(const shm::Snapshot& snapshot, const std::string& session,
                        std::size_t columns) {
  std::string text = fmt::format("session {}: {}\n", session, describe_controller(snapshot));
  for (const shm::DeviceSnapshot& device : snapshot.devices) {
    text += fmt::format("GPU {}: {}, {}\n", device.index, device.name, device.uuid);
  }
  if (snapshot.clients.empty()) {
    return text + "no clients: a program shows up at its first call to the driver\n";
  }
  text += fmt::format("{:>8} {:>4} {:>3}  {:<14} {:<13} {:>10} {:>8} {:>8}  {}\n", "PID", "PRIO",
                      "GPU", "POLICY", "STATE", "LAUNCHES", "WAITS", "HELD", "COMMAND");
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    text += client_row(client, columns) + remarks(client);
  }
  return text;
}

std::string coverage_text(const shm::Snapshot& snapshot, std::size_t columns) {
  std::string text;
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    text += fmt::format("\npid {} ({}, priority {}, {}): {} launches, {} bypassed\n", client.pid,
                        command_of(client, columns), client.priority, client.policy,
                        client.launches, client.bypassed);
    if (!client.entries.empty()) {
      text += fmt::format("  {:<31} {:>9} {:>9} {:>8} {:>8} {:>7}  {}\n", "DRIVER ENTRY",
                          "LAUNCHES", "GATED", "CAPTURED", "WAITED", "HELD", "BYPASSED");
    }
    for (const shm::EntrySnapshot& entry : client.entries) text += entry_row(entry);
    if (client.unhooked_lookups != 0) {
      text += fmt::format("  asked {} times for entries that are not hooked, last {}\n",
                          client.unhooked_lookups, client.unhooked_name);
    }
  }
  return text;
}

}  // namespace sluice::tools
