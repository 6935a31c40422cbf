#include "tools/set/choice.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <optional>

#include "base/command_line.hpp"

namespace sluice::tools {
namespace {

using Clients = std::vector<shm::ClientSnapshot>;
using Which = std::function<bool(const shm::ClientSnapshot&)>;

bool lives(const shm::ClientSnapshot& client) {
  return client.state == shm::SlotState::kReserved || client.state == shm::SlotState::kLive ||
         client.state == shm::SlotState::kFailedOpen;
}

Clients those(const shm::Snapshot& snapshot, const Which& which) {
  Clients found;
  std::copy_if(snapshot.clients.begin(), snapshot.clients.end(), std::back_inserter(found), which);
  return found;
}

bool of_one_process(const Clients& clients) {
  return std::all_of(clients.begin(), clients.end(), [&](const shm::ClientSnapshot& client) {
    return client.pid == clients.front().pid;
  });
}

std::optional<std::uint32_t> number_in(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string list_of(const Clients& clients) {
  std::string text;
  for (const shm::ClientSnapshot& client : clients) {
    text += (text.empty() ? "" : "; ") + describe(client);
  }
  return text;
}

/// Whether `text` stands in the command as one or more whole words, or as the end of a path.
bool holds_whole(const std::string& command, const std::string& text) {
  for (auto at = command.find(text); at != std::string::npos; at = command.find(text, at + 1)) {
    const std::size_t end = at + text.size();
    const bool begins = at == 0 || command[at - 1] == ' ' || command[at - 1] == '/';
    if (begins && (end == command.size() || command[end] == ' ')) return true;
  }
  return false;
}

/// All that `text` could mean, in whatever way.
Clients candidates(const shm::Snapshot& snapshot, const std::string& text) {
  const auto pid_is = [](std::uint32_t pid) {
    return [pid](const shm::ClientSnapshot& client) { return client.pid == pid; };
  };
  const auto slot_is = [](std::uint32_t slot) {
    return
        [slot](const shm::ClientSnapshot& client) { return client.slot == static_cast<int>(slot); };
  };
  const std::string_view view = text;
  if (view.starts_with("pid:")) {
    if (const auto pid = number_in(view.substr(4))) return those(snapshot, pid_is(*pid));
  }
  if (view.starts_with("slot:")) {
    if (const auto slot = number_in(view.substr(5))) return those(snapshot, slot_is(*slot));
  }
  // Nothing else: a number is most likely a pid, and one that has just gone must not be found in
  // the command of another.
  if (const auto pid = number_in(text)) return those(snapshot, pid_is(*pid));
  return those(snapshot, [&](const shm::ClientSnapshot& client) {
    return client.command.find(text) != std::string::npos;
  });
}

}  // namespace

std::string describe(const shm::ClientSnapshot& client) {
  return "pid " + std::to_string(client.pid) + ", slot " + std::to_string(client.slot) + " (" +
         client.command + ")";
}

std::vector<shm::ClientSnapshot> choose_clients(const shm::Snapshot& snapshot,
                                                const std::string& text) {
  if (text.empty()) throw base::UsageError("no client is named by ''");
  const Clients found = candidates(snapshot, text);
  Clients living;
  std::copy_if(found.begin(), found.end(), std::back_inserter(living), lives);
  if (found.empty()) {
    const Clients all = those(snapshot, lives);
    throw base::UsageError("no client '" + text + "' in this session; " +
                           (all.empty() ? "it has none" : "there are: " + list_of(all)));
  }
  if (living.empty()) {
    throw base::UsageError("client '" + text + "' has ended: " + list_of(found));
  }
  if (!of_one_process(living)) {
    // "critical" names that worker beside one called most_critical, and train.py not pretrain.py.
    Clients whole;
    std::copy_if(
        living.begin(), living.end(), std::back_inserter(whole),
        [&](const shm::ClientSnapshot& client) { return holds_whole(client.command, text); });
    if (!whole.empty() && of_one_process(whole)) return whole;
    throw base::UsageError("'" + text + "' is ambiguous: " + list_of(living) +
                           "; name one by pid:N or slot:N");
  }
  return living;
}

}  // namespace sluice::tools
