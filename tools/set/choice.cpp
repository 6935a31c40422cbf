#include "tools/set/choice.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <optional>

#include "base/command_line.hpp"
#include "tools/common/text.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kCommand = 40;  ///< Columns of a command in a list.
constexpr std::string_view kLabel = "label:";

using Clients = std::vector<shm::ClientSnapshot>;
using Which = std::function<bool(const shm::ClientSnapshot&)>;

bool lives(const shm::ClientSnapshot& client) {
  return client.state == shm::SlotState::kReserved || client.state == shm::SlotState::kLive;
}

Clients those(const Clients& clients, const Which& which) {
  Clients found;
  std::copy_if(clients.begin(), clients.end(), std::back_inserter(found), which);
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

/// One client a line.
std::string list_of(const Clients& clients) {
  std::string text;
  for (const shm::ClientSnapshot& client : clients) {
    text += "\n  " + describe(client) + ": " + shortened(client.command, kCommand);
  }
  return text;
}

/// Whether `field` contains `text` as one or more whole words, or as the end of a path.
bool has_whole(const std::string& field, const std::string& text) {
  for (auto at = field.find(text); at != std::string::npos; at = field.find(text, at + 1)) {
    const std::size_t end = at + text.size();
    const bool begins = at == 0 || field[at - 1] == ' ' || field[at - 1] == '/';
    if (begins && (end == field.size() || field[end] == ' ')) return true;
  }
  return false;
}

bool has_label(const shm::ClientSnapshot& client, std::string_view label) {
  return std::any_of(client.labels.begin(), client.labels.end(),
                     [label](const auto& own) { return own.first + "=" + own.second == label; });
}

/// All clients that `text` could mean.
Clients candidates(const shm::Snapshot& snapshot, const std::string& text) {
  const auto pid_is = [](std::uint32_t pid) {
    return [pid](const shm::ClientSnapshot& client) { return client.pid == pid; };
  };
  const auto slot_is = [](std::uint32_t slot) {
    return
        [slot](const shm::ClientSnapshot& client) { return client.slot == static_cast<int>(slot); };
  };
  const std::string_view view = text;
  if (view.starts_with(kLabel)) {
    return those(snapshot.clients, [label = view.substr(kLabel.size())](const auto& client) {
      return has_label(client, label);
    });
  }
  if (view.starts_with("pid:")) {
    if (const auto pid = number_in(view.substr(4))) return those(snapshot.clients, pid_is(*pid));
  }
  if (view.starts_with("slot:")) {
    if (const auto slot = number_in(view.substr(5))) return those(snapshot.clients, slot_is(*slot));
  }
  // A number is a pid and nothing else: the pid of a process that has just ended must not be found
  // in the command of another.
  if (const auto pid = number_in(text)) return those(snapshot.clients, pid_is(*pid));
  return those(snapshot.clients, [&](const shm::ClientSnapshot& client) {
    return client.name.find(text) != std::string::npos ||
           client.command.find(text) != std::string::npos;
  });
}

}  // namespace

std::string describe(const shm::ClientSnapshot& client) {
  return client.name + " (pid " + std::to_string(client.pid) + ", slot " +
         std::to_string(client.slot) + ")";
}

std::vector<shm::ClientSnapshot> choose_clients(const shm::Snapshot& snapshot,
                                                const std::string& text, bool all) {
  if (text.empty()) throw base::UsageError("no client is named by ''");
  const Clients found = candidates(snapshot, text);
  const Clients living = those(found, lives);
  if (found.empty()) {
    const Clients others = those(snapshot.clients, lives);
    throw base::UsageError("no client '" + text + "' in this session" +
                           (others.empty() ? "; it has none" : "; there are:" + list_of(others)));
  }
  if (living.empty()) throw base::UsageError("client '" + text + "' has ended:" + list_of(found));
  if (all || text.starts_with(kLabel) || of_one_process(living)) return living;
  // The most exact match wins: a client named "critical" is found next to "most_critical", and
  // train.py next to pretrain.py.
  const Clients named = those(living, [&](const auto& client) { return client.name == text; });
  if (!named.empty()) return named;  // workers of one name are one job to their user
  const Clients whole = those(living, [&](const auto& client) {
    return has_whole(client.name, text) || has_whole(client.command, text);
  });
  if (!whole.empty() && of_one_process(whole)) return whole;
  throw base::UsageError("'" + text +
                         "' is ambiguous, name one by pid:N or slot:N, or change all of them with "
                         "--all:" +
                         list_of(living));
}

}  // namespace sluice::tools
