// What `sluice status` and `sluice top` say about work that no gate holds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tools/common/text.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kMostNamed = 4;  ///< Processes outside that get a line each.
constexpr std::size_t kLeastCommand = 11;

/// The command has the columns that the rest of the line leaves.
std::string describe(const shm::OutsideProcess& process, const std::string& gpu,
                     std::size_t columns) {
  const std::string front =
      fmt::format("{}{}: pid {} (", gpu,
                  process.preloaded ? "without a slot here" : "not under Sluice", process.pid);
  const std::string back =
      fmt::format("){}: no policy holds its work",
                  process.memory_bytes ? ", " + memory_text(*process.memory_bytes) : "");
  const std::size_t left = columns - std::min(columns, front.size() + back.size());
  return front + shortened(process.command, std::max(left, kLeastCommand)) + back;
}

/// "12 %", and never 0 or 100 % of what is only nearly none or nearly all.
std::string share_of(std::uint64_t part, std::uint64_t whole) {
  const double percent = static_cast<double>(part) * 100 / static_cast<double>(whole);
  if (part == whole) return "all";
  if (percent < 1) return "below 1 %";
  return fmt::format("{:.0f} %", std::min(percent, 99.0));
}

/// What a user can do about launches that passed ungated for this reason.
std::string remedy(shm::Count reason, const shm::ClientSnapshot& client) {
  switch (reason) {
    case shm::Count::kBypassPolicyNone:
      return client.policy == "none"
                 ? fmt::format("sluice set {} --policy device:200us", client.pid)
                 : "it has another policy now";
    case shm::Count::kBypassUnattached:
      return "start its controller first: sluice controller";
    case shm::Count::kBypassRefusedWait:
      return fmt::format("sluice set {} --policy event:2", client.pid);
    default:
      return {};
  }
}

}  // namespace

std::vector<std::string> outside_notes(const shm::Snapshot& snapshot, std::size_t columns) {
  std::vector<shm::OutsideProcess> named = snapshot.outside;
  std::erase_if(named, [](const shm::OutsideProcess& process) { return process.pid == 0; });
  std::stable_sort(named.begin(), named.end(), [](const auto& a, const auto& b) {
    return std::pair(!a.preloaded, a.memory_bytes.value_or(0)) >
           std::pair(!b.preloaded, b.memory_bytes.value_or(0));
  });
  const std::size_t unnamed = snapshot.outside.size() - named.size();
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(named.size(), kMostNamed); ++i) {
    const bool several = snapshot.devices.size() > 1;
    lines.push_back(
        describe(named[i], several ? fmt::format("GPU {}, ", named[i].device) : "", columns));
  }
  if (named.size() > kMostNamed) {
    lines.push_back(fmt::format("and {} more without a slot", named.size() - kMostNamed));
  }
  if (unnamed != 0) {
    lines.push_back("not in this session: " + counted(unnamed, "process", "processes") +
                    " whose pid is not visible here");
  }
  return lines;
}

std::vector<std::string> bypass_notes(const shm::ClientSnapshot& client) {
  std::vector<std::string> lines;
  for (auto i = static_cast<std::size_t>(shm::Count::kBypassPolicyNone);
       i < static_cast<std::size_t>(shm::Count::kLaunchKinds); ++i) {
    const auto reason = static_cast<shm::Count>(i);
    std::uint64_t launches = 0;
    for (const shm::EntrySnapshot& entry : client.entries) launches += entry.count(reason);
    if (launches == 0) continue;
    const std::string what = remedy(reason, client);
    lines.push_back(fmt::format("{} ({}) ungated: {}{}", counted(launches, "launch", "launches"),
                                share_of(launches, client.launches), shm::bypass_name(reason),
                                what.empty() ? "" : "; " + what));
  }
  if (client.unhooked_lookups != 0) lines.push_back(unhooked_note(client));
  return lines;
}

std::string launches_note(const shm::Snapshot& snapshot) {
  std::uint64_t launches = 0, past = 0;
  bool sees_all = true;
  for (const shm::ClientSnapshot& client : snapshot.clients) {
    launches += client.launches;
    past += client.bypassed;
    sees_all &= client.unhooked_lookups == 0;
  }
  if (launches == 0) return {};
  return fmt::format("{}: {} went past a gate{}\n", counted(launches, "launch", "launches"),
                     past == 0 ? "none" : fmt::format("{} ({})", past, share_of(past, launches)),
                     sees_all ? "" : ", of those that were seen");
}

std::string unhooked_note(const shm::ClientSnapshot& client) {
  // Files of libraries have a dot, driver entries have none.
  const std::string& name = client.unhooked_name;
  if (name.find('.') == std::string::npos && name.starts_with("cu")) {
    return "ungated: launches by " + name + ", which has no hook";
  }
  return "some launches may pass by: " + name + " was opened with RTLD_DEEPBIND or dlmopen";
}

}  // namespace sluice::tools
