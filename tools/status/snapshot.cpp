#include "tools/status/snapshot.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "shm/gates.hpp"
#include "shm/policy.hpp"
#include "tools/common/uuid.hpp"

namespace sluice::tools {
namespace {

/// The launch entries of the hook table, in its order: the order of Slot::entries.
std::vector<std::string_view> entry_names() {
  constexpr std::string_view kLaunch = "Launch";
  std::vector<std::string_view> names;
#define SLUICE_HOOK(name, kind) \
  if (#kind == kLaunch) names.emplace_back(#name);
#include "intercept/hooks.def"
#undef SLUICE_HOOK
  return names;
}

/// Text that another process may be writing just now: never read past the field.
template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

std::uint64_t age(std::uint64_t now_ns, std::uint64_t then_ns) {
  return then_ns != 0 && now_ns > then_ns ? now_ns - then_ns : 0;
}

std::string describe(shm::FailReason reason) {
  switch (reason) {
    case shm::FailReason::kNone:
      return {};
    case shm::FailReason::kControllerGone:
      return "its controller is gone";
    case shm::FailReason::kControllerSilent:
      return "its controller gave no sign of life";
    case shm::FailReason::kDriverWait:
      return "a wait on the driver took too long";
  }
  return "unknown reason";
}

std::vector<Holder> holders_of(const shm::Board& board, std::uint64_t gate) {
  std::vector<Holder> holders;
  shm::for_each_other(gate, shm::kControllerBit, [&](int index) {
    const shm::Slot& slot = board.slots[static_cast<std::size_t>(index)];
    holders.push_back(
        {slot.pid.load(), shm::SlotInfo::unpack(slot.info.load()).priority, text_of(slot.command)});
  });
  if ((gate & shm::bit(shm::kControllerBit)) != 0) holders.push_back({0, 0, "the controller"});
  return holders;
}

void add_entries(const shm::Slot& slot, ClientSnapshot& client) {
  const std::vector<std::string_view> names = entry_names();
  for (std::size_t i = 0; i < std::min(names.size(), slot.entries.size()); ++i) {
    EntrySnapshot entry{std::string(names[i]), slot.entries[i].launches(), {}};
    for (std::size_t c = 0; c < entry.counts.size(); ++c) {
      entry.counts[c] = slot.entries[i].words[c].load(std::memory_order_relaxed);
    }
    if (entry.launches == 0) continue;
    client.launches += entry.launches;
    client.bypassed +=
        entry.launches - entry.count(shm::Count::kGated) - entry.count(shm::Count::kCaptured);
    client.waits += entry.count(shm::Count::kWaited);
    client.entries.push_back(std::move(entry));
  }
}

ClientSnapshot read_client(const shm::Board& board, int index, std::uint64_t now_ns) {
  const shm::Slot& slot = board.slots[static_cast<std::size_t>(index)];
  const shm::SlotInfo info = shm::SlotInfo::unpack(slot.info.load());
  ClientSnapshot client;
  client.slot = index;
  client.generation = info.generation;
  client.pid = slot.pid.load();
  client.command = text_of(slot.command);
  client.device = info.device;
  client.priority = info.priority;
  const shm::Policy policy = shm::Policy::unpack(slot.policy.load());
  client.policy = shm::to_string(policy);
  client.requested_policy = shm::to_string(shm::Policy::unpack(slot.requested_policy.load()));
  client.state = info.state;
  client.fail_reason = describe(static_cast<shm::FailReason>(slot.fail_reason.load()));
  const std::uint64_t job = slot.job.load();
  client.active = shm::is_active(job);
  client.attached_ns = age(now_ns, slot.attached_ns.load());
  client.jobs = job / 2;
  for (const shm::Word& took : slot.recent_jobs_ns) {
    const std::uint64_t ns = took.load(std::memory_order_relaxed);
    if (ns != 0) client.recent_jobs_ns.push_back(ns);
  }
  if (client.active) client.active_ns = age(now_ns, slot.job_since_ns.load());
  // Under policy none the gate closes too, and nobody heeds it: that is no hold.
  if (policy.kind != shm::PolicyKind::kNone) {
    client.holders = holders_of(board, slot.gate.load());
    if (!client.holders.empty()) client.held_ns = age(now_ns, slot.closed_since_ns.load());
    // The board counts a hold when it ends, and only with work outstanding; so do we for this one.
    client.held_total_ns = slot.closed_ns.load() + (client.active ? client.held_ns : 0);
  }
  client.max_hold_opened = slot.max_hold_opened.load();
  client.unhooked_asked = slot.unhooked_asked.load();
  client.unhooked_name = text_of(slot.unhooked_name);
  client.longest_ns = slot.longest_ns.load();
  client.bare_graph_ns = slot.bare_graph_ns.load();
  client.unknown_launches = slot.unknown_launches.load();
  client.predicted = slot.predicted.load();
  client.predicted_hits = slot.predicted_hits.load();
  client.predicted_paid_ns = slot.predicted_paid_ns.load();
  add_entries(slot, client);
  return client;
}

}  // namespace

Snapshot take_snapshot(const shm::Board& board, std::uint64_t now_ns) {
  Snapshot snapshot;
  snapshot.taken_ns = now_ns;
  snapshot.board_id = board.board_id.load();
  snapshot.controller_pid = board.controller_pid.load();
  snapshot.heartbeat_age_ns = age(now_ns, board.heartbeat_ns.load());
  snapshot.controller_lives =
      snapshot.controller_pid != 0 && snapshot.heartbeat_age_ns < shm::kHeartbeatLostNs;
  snapshot.controller_starts = board.controller_starts.load();
  snapshot.max_hold_ns = board.max_hold_ns.load();
  for (std::size_t i = 0; i < board.devices.size(); ++i) {
    const shm::Device& device = board.devices[i];
    if (device.used.load() == 0) continue;
    snapshot.devices.push_back(
        {static_cast<int>(i), text_of(device.name), format_uuid(device.uuid)});
  }
  shm::for_each_other(board.used.load(), shm::kControllerBit, [&](int index) {
    const auto word = board.slots[static_cast<std::size_t>(index)].info.load();
    if (shm::SlotInfo::unpack(word).state == shm::SlotState::kFree) return;
    snapshot.clients.push_back(read_client(board, index, now_ns));
  });
  return snapshot;
}

std::string bypass_name(shm::Count count) {
  switch (count) {
    case shm::Count::kBypassPolicyNone:
      return "policy none";
    case shm::Count::kBypassUnattached:
      return "not attached";
    case shm::Count::kBypassFailedOpen:
      return "failed open";
    case shm::Count::kBypassForeignCapture:
      return "captured into an existing graph";
    default:
      return "unknown";
  }
}

std::string state_name(const ClientSnapshot& client) {
  switch (client.state) {
    case shm::SlotState::kReserved:
      return "starting";
    case shm::SlotState::kFailedOpen:
      return "failed open";
    case shm::SlotState::kLeaving:
      return "leaving";
    case shm::SlotState::kDead:
      return "dead";
    case shm::SlotState::kFree:
    case shm::SlotState::kLive:
      break;
  }
  if (!client.holders.empty()) return "held";
  return client.active ? "active" : "idle";
}

}  // namespace sluice::tools
