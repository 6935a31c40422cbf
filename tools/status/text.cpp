#include "tools/common/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/user_name.hpp"
#include "shm/give.hpp"
#include "shm/slice.hpp"
#include "shm/weight.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kLeastName = 11;
constexpr std::size_t kCoverageName = 22;
constexpr std::size_t kMostUser = 16;
constexpr std::size_t kLeastCommand = 30;  ///< The program and some arguments.

std::string describe_controller(const shm::Snapshot& snapshot) {
  if (snapshot.controller_pid == 0) {
    return "no controller (it left): new clients run ungated until one starts";
  }
  const std::string beat = format_duration(snapshot.heartbeat_age_ns);
  if (snapshot.controller_lives) {
    return fmt::format("controller pid {}, heartbeat {} ago", snapshot.controller_pid, beat);
  }
  return fmt::format(
      "controller pid {} is dead or stopped (last heartbeat {} ago): new clients run ungated",
      snapshot.controller_pid, beat);
}

/// Why the client waits or runs ungated; empty if its state is the whole answer.
std::string explain(const shm::ClientSnapshot& client) {
  if (client.holders.empty() || client.state != shm::SlotState::kLive) return {};
  std::string text = fmt::format("held for {} by", format_duration(client.held_ns));
  for (const shm::Holder& holder : client.holders) {
    if (&holder != &client.holders.front()) text += " and";
    text += holder.pid == 0 ? " " + holder.name
                            : fmt::format(" pid {} (priority {}, {})", holder.pid, holder.priority,
                                          holder.name);
  }
  return text;
}

std::size_t widest(const shm::Snapshot& snapshot, std::string shm::ClientSnapshot::*field,
                   std::size_t least) {
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    least = std::max(least, columns_of(client.*field));
  }
  return least;
}

/// The table of the clients. The name has what the other columns leave, and a command is shown only
/// where the longest name leaves room for one.
class Table {
 public:
  Table(const shm::Snapshot& snapshot, std::size_t columns)
      : columns_(columns),
        several_devices_(snapshot.devices.size() > 1),
        user_(snapshot.service.empty() ? 0 : widest_user(snapshot)),
        policy_(widest(snapshot, &shm::ClientSnapshot::policy, 6)) {
    const std::size_t left = columns - std::min(columns, front({}).size());
    const std::size_t longest = widest(snapshot, &shm::ClientSnapshot::name, 4);
    with_command_ = left >= longest + 2 + kLeastCommand;
    name_ = with_command_ ? longest : std::max(left, kLeastName);
  }

  [[nodiscard]] std::string header() const {
    return line({"PID", "USER", "PRI", "GPU", "POLICY", "STATE", "LAUNCHES", "WAITS", "HELD"},
                "NAME", "COMMAND");
  }

  [[nodiscard]] std::string row(const shm::ClientSnapshot& client) const {
    return line(
        {std::to_string(client.pid), user_ == 0 ? "" : base::user_name(client.uid),
         std::to_string(client.priority), std::to_string(client.device), client.policy,
         state_cell(client), short_number(static_cast<double>(client.launches)),
         short_number(static_cast<double>(client.waits)), short_duration(client.held_total_ns)},
        client.name, client.command);
  }

 private:
  struct Cells {
    std::string pid, user, priority, device, policy, state, launches, waits, held;
  };

  [[nodiscard]] std::string front(const Cells& cells) const {
    return fmt::format("{:>7} ", cells.pid) +
           (user_ != 0 ? fit(shortened(cells.user, user_), user_) + " " : "") +
           fmt::format("{:>3} ", cells.priority) +
           (several_devices_ ? fmt::format("{:>3} ", cells.device) : "") +
           fmt::format("{:<{}} {:<12} {:>8} {:>5} {:>6}  ", cells.policy, policy_, cells.state,
                       cells.launches, cells.waits, cells.held);
  }

  [[nodiscard]] std::string line(const Cells& cells, const std::string& name,
                                 const std::string& command) const {
    std::string text = front(cells);
    if (!with_command_) return text + shortened(name, name_) + "\n";
    text += fit(name, name_) + "  ";
    return text + shortened(command, columns_ - std::min(columns_, columns_of(text))) + "\n";
  }

  static std::size_t widest_user(const shm::Snapshot& snapshot) {
    std::size_t widest = 4;
    for (const shm::ClientSnapshot& client : snapshot.clients) {
      widest = std::max(widest, columns_of(base::user_name(client.uid)));
    }
    return std::min(widest, kMostUser);
  }

  std::size_t columns_;
  bool several_devices_;
  std::size_t user_;  ///< Width of the column; 0: all clients belong to the user of the session.
  std::size_t policy_;
  bool with_command_ = false;
  std::size_t name_ = 0;
};

std::string remarks(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client,
                    std::size_t columns) {
  std::string text;
  const std::string indent(11, ' ');
  auto add = [&](const std::string& line) {
    text += shortened(indent + line, std::max<std::size_t>(columns, 40)) + "\n";
  };
  if (const std::string why = explain(client); !why.empty()) add("^ " + why);
  if (client.policy != client.requested_policy && client.state != shm::SlotState::kReserved) {
    add("^ " + policy_note(client));
  }
  if (const std::string note = ungated_note(snapshot, client); !note.empty()) add("^ " + note);
  // What follows the last separator has a line of its own where the whole does not fit.
  auto add_parts = [&](const std::string& note, const char* separator = "; ") {
    const std::size_t last = note.rfind(separator);
    const bool fits = indent.size() + note.size() <= columns || last == std::string::npos;
    add(fits ? note : note.substr(0, last));
    if (!fits) add(" " + note.substr(last + 1));
  };
  for (const std::string& note : bypass_notes(client)) add_parts(note);
  if (const std::string note = target_note(client); !note.empty()) add_parts(note);
  if (const std::string why = target_warning(client); !why.empty()) add_parts("^ " + why);
  for (const std::string& note : usage_notes(client)) add(note);
  if (const std::string note = mps_note(snapshot, client); !note.empty()) add_parts(note);
  if (const std::string note = slice_note(client); !note.empty()) add(note);
  if (const std::string note = turn_note(client); !note.empty()) add(note);
  if (const std::string note = give_note(client); !note.empty()) add_parts(note, ", ");
  if (const std::string note = waits_note(client); !note.empty()) add(note);
  if (const std::string note = close_note(client); !note.empty()) add_parts(note);
  if (const std::string note = steps_note(client); !note.empty()) add_parts(note);
  if (client.longest_launch_ns != 0) {
    add(fmt::format("longest launch without a wait inside: {:.1f} ms",
                    static_cast<double>(client.longest_launch_ns) / 1e6));
  }
  if (client.unknown_launches != 0) {
    add(counted(client.unknown_launches, "launch", "launches") +
        " of unknown duration got a wait each");
  }
  if (client.ungated_graph_ns != 0) {
    add(fmt::format("a graph of {} has no waits inside: critical jobs may wait that long",
                    format_duration(client.ungated_graph_ns)));
  }
  if (client.predictions != 0) {
    add(fmt::format("predicts its jobs: {} % of {} came, {} of closed gates each",
                    client.prediction_hits * 100 / client.predictions, client.predictions,
                    format_duration(client.prediction_cost_ns / client.predictions)));
  }
  if (const std::string note = skipped_waits_note(client); !note.empty()) add("^ " + note);
  if (client.waited_for_pid != 0) {
    add(fmt::format("^ pid {} waits for its work, and so does not hold it meanwhile",
                    client.waited_for_pid));
  }
  if (client.stalled_streams != 0) {
    const bool one = client.stalled_streams == 1;
    add("^ " + counted(client.stalled_streams, "stream", "streams") +
        (one ? " makes no progress, and holds nobody until it does"
             : " make no progress, and hold nobody until they do"));
  }
  if (client.max_hold_opened != 0) {
    add("^ max_hold opened its gate " + counted(client.max_hold_opened, "time", "times"));
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

bool paces(const shm::ClientSnapshot& client) {
  return client.state == shm::SlotState::kLive && client.policy != "none" &&
         client.policy != "gate";
}

/// What a user may want to change; empty for the ordinary reasons.
std::string why_no_slice(shm::SliceState state) {
  switch (state) {
    case shm::SliceState::kRefused:
      return "the system refuses to set it";
    case shm::SliceState::kSeveral:
      return "several programs are busy, and one of them leaves the GPU idle now and then";
    case shm::SliceState::kOutside:
      return "programs outside Sluice use the GPU";
    case shm::SliceState::kNotObeyed:
      return "the GPU does not obey another (sluice doctor --slices tries again)";
    default:
      return {};
  }
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

std::string memory_text(std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1U << 20U);
  return mib < 1000 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string policy_note(const shm::ClientSnapshot& client) {
  const bool device = client.requested_policy.starts_with("device");
  return fmt::format("asked for policy {}, which {}", client.requested_policy,
                     device ? "its device cannot do" : "it has not taken up yet");
}

std::string slice_note(const shm::ClientSnapshot& client) {
  if (client.slice_us != 0) {
    const bool refused = client.slice_state == shm::SliceState::kRefused;
    return fmt::format("time slice {}{}", shm::slice_text(client.slice_us),
                       refused ? ": the system refuses to set another" : "");
  }
  if (client.slice == "auto") {
    const std::string why = why_no_slice(client.slice_state);
    return why.empty() ? why : "time slice of the driver: " + why;
  }
  return fmt::format("asked for time slice {}, has the driver's ({})", client.slice,
                     shm::slice_state_name(client.slice_state));
}

std::string turn_note(const shm::ClientSnapshot& client) {
  const bool weighs = client.weight != shm::kNoWeight;
  if (!weighs && !client.takes_turns) return {};
  const std::string weight = weighs ? "weight " + shm::weight_text(client.weight) : "no weight (1)";
  if (client.has_turn) return weight + ", has the turn";
  return client.waits_for_turn ? weight + ", waits for its turn" : weight;
}

std::string_view close_state_name(shm::CloseState state) {
  switch (state) {
    case shm::CloseState::kUnknown:
      break;
    case shm::CloseState::kLearning:
      return "learning";
    case shm::CloseState::kClosesAtFirst:
      return "first";
    case shm::CloseState::kClosesLater:
      return "later";
    case shm::CloseState::kStaysOpen:
      return "open";
  }
  return "unknown";
}

std::string close_note(const shm::ClientSnapshot& client) {
  const shm::CloseWord close = client.close;
  if (close.state == shm::CloseState::kUnknown) return {};
  const std::string when = close.level == 0 ? "at the first launch of a job"
                           : close.level == shm::CloseWord::kNeverLevel ? "never"
                           : close.level == shm::CloseWord::kNeverLevel - 1
                               ? "when it waits for a job"
                               : fmt::format("after {}/8 of a job", close.level);
  const std::string cost = close.level == 0
                               ? ""
                               : fmt::format("; its jobs wait {:.2f} to {:.2f} ms longer for that",
                                             client.close_low_us / 1e3, client.close_high_us / 1e3);
  if (close.state == shm::CloseState::kStaysOpen)
    return "gates stay open: closing them brings nothing" + cost;
  const bool learns = close.state == shm::CloseState::kLearning;
  return fmt::format("{} gates {}{}", learns ? "tries to close" : "closes", when, cost);
}

std::string give_note(const shm::ClientSnapshot& client) {
  const shm::GiveSnapshot& give = client.give;
  if (give.most == 0) {
    const bool holds = give.known || !client.held_others.empty();
    return holds ? "gives nothing (--give 0)" : "";
  }
  if (!give.known) return {};
  std::string levers;
  const auto add = [&levers](std::uint32_t part, const char* lever) {
    if (part < 5) return;  // below 0.05 % it would read 0.0 %
    levers += fmt::format("{}{} ({:.1f} %)", levers.empty() ? ": " : ", ", lever, part / 100.0);
  };
  add(give.closing, "gates close late");
  add(give.windows, "windows");
  add(give.open, "gates stay open");
  const std::uint64_t all = std::uint64_t{give.closing} + give.windows + give.open;
  std::string most = shm::give_text(give.most);
  most.pop_back();  // as everywhere in status, there is a space in front of the sign
  return fmt::format("gives {} of {} %{}", all < 5 ? "0" : fmt::format("{:.1f}", all / 100.0), most,
                     levers);
}

std::string skipped_waits_note(const shm::ClientSnapshot& client) {
  if (client.skipped_waits == 0) return {};
  return fmt::format("skipped {} of its policy: the GPU was not done after 5 s",
                     counted(client.skipped_waits, "wait", "waits"));
}

std::string ungated_note(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client) {
  const auto& all = snapshot.clients;
  const bool others_pace = std::any_of(all.begin(), all.end(), [&](const auto& other) {
    return other.device == client.device && other.slot != client.slot && paces(other);
  });
  if (client.state != shm::SlotState::kLive || client.policy != "none" || !others_pace) return {};
  return "runs ungated: jobs of higher priority take turns with it";
}

std::string state_cell(const shm::ClientSnapshot& client) {
  const std::string state = shm::state_name(client);
  if (state != "active") return state;
  return (client.target.gates_open ? "open " : "active ") + coarse_duration(client.active_ns);
}

std::string status_text(const shm::Snapshot& snapshot, const std::string& session,
                        std::size_t columns) {
  std::string text = fmt::format("session {}: {}\n", session, describe_controller(snapshot));
  if (!snapshot.service.empty()) text += "node service: " + snapshot.service + "\n";
  for (const shm::DeviceSnapshot& device : snapshot.devices) {
    text += fmt::format("GPU {}: {}, {}, slices: {}\n", device.index, device.name, device.uuid,
                        shm::answer_text(device.slices));
  }
  columns = std::max<std::size_t>(columns, 80);
  for (const std::string& note : gain_notes(snapshot, columns)) text += note + "\n";
  for (const std::string& note : outside_notes(snapshot, columns)) {
    text += shortened(note, columns) + "\n";
  }
  if (snapshot.clients.empty()) {
    return text + "no clients: a program appears at its first call to the driver\n";
  }
  text += launches_note(snapshot);
  const Table table(snapshot, columns);
  text += table.header();
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    text += table.row(client) + remarks(snapshot, client, columns);
  }
  return text;
}

std::string coverage_text(const shm::Snapshot& snapshot) {
  std::string text;
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    text += fmt::format("\npid {} ({}, priority {}, {}): {}, {} bypassed{}\n", client.pid,
                        shortened(client.name, kCoverageName), client.priority, client.policy,
                        counted(client.launches, "launch", "launches"), client.bypassed,
                        client.unhooked_lookups != 0 ? " of those that were seen" : "");
    if (client.unhooked_lookups != 0) text += "  " + unhooked_note(client) + "\n";
    if (!client.entries.empty()) {
      text += fmt::format("  {:<31} {:>9} {:>9} {:>8} {:>8} {:>7}  {}\n", "DRIVER ENTRY",
                          "LAUNCHES", "GATED", "CAPTURED", "WAITED", "HELD", "BYPASSED");
    }
    for (const shm::EntrySnapshot& entry : client.entries) text += entry_row(entry);
  }
  if (!snapshot.outside.empty()) {
    text += fmt::format("\nnot counted: launches of {} without a slot, which are named above\n",
                        counted(snapshot.outside.size(), "process", "processes"));
  }
  return text;
}

}  // namespace sluice::tools
