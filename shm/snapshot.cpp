#include "shm/snapshot.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "base/gpu_processes.hpp"
#include "base/uuid.hpp"
#include "shm/entry_names.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"
#include "shm/view.hpp"

namespace sluice::shm {
namespace {

/// Another process may be writing the text: never read past the field.
template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

std::uint64_t age(std::uint64_t now_ns, std::uint64_t then_ns) {
  return then_ns != 0 && now_ns > then_ns ? now_ns - then_ns : 0;
}

std::string describe(FailReason reason) {
  switch (reason) {
    case FailReason::kNone:
      return {};
    case FailReason::kDriverWait:
      return "a wait on the driver took too long";
  }
  return "unknown reason";
}

std::vector<Holder> holders_of(const Board& board, std::uint64_t gate) {
  std::vector<Holder> holders;
  for_each_other(gate, kControllerBit, [&](int index) {
    const Slot& slot = board.slots[static_cast<std::size_t>(index)];
    holders.push_back({slot.pid.load(), SlotInfo::unpack(slot.info.load()).priority,
                       text_of(slot.name), text_of(slot.command)});
  });
  if ((gate & bit(kControllerBit)) != 0)
    holders.push_back({0, 0, "the controller", "the controller"});
  return holders;
}

void add_entries(const Slot& slot, ClientSnapshot& client) {
  for (std::size_t i = 0; i < kEntryNames.size(); ++i) {
    EntrySnapshot entry{std::string(kEntryNames[i]), slot.entries[i].launches(), {}};
    for (std::size_t c = 0; c < entry.counts.size(); ++c) {
      entry.counts[c] = slot.entries[i].value(static_cast<Count>(c));
    }
    if (entry.launches == 0) continue;
    client.launches += entry.launches;
    client.bypassed += entry.launches - entry.count(Count::kGated) - entry.count(Count::kCaptured);
    client.waits += entry.count(Count::kWaited);
    client.entries.push_back(std::move(entry));
  }
}

ClientSnapshot read_client(const Board& board, int index, std::uint64_t now_ns) {
  const Slot& slot = board.slots[static_cast<std::size_t>(index)];
  const SlotInfo info = SlotInfo::unpack(slot.info.load());
  ClientSnapshot client;
  client.slot = index;
  client.generation = info.generation;
  client.pid = slot.pid.load();
  client.name = text_of(slot.name);
  client.command = text_of(slot.command);
  client.device = info.device;
  client.priority = info.priority;
  const Policy policy = Policy::unpack(slot.policy.load());
  client.policy = to_string(policy);
  client.requested_policy = to_string(Policy::unpack(slot.requested_policy.load()));
  client.state = info.state;
  client.fail_reason = describe(static_cast<FailReason>(slot.fail_reason.load()));
  const std::uint64_t job = slot.job.load();
  client.active = is_active(job);
  client.attached_ns = age(now_ns, slot.attached_ns.load());
  JobTimes::Recent recent = slot.job_times.recent();
  client.jobs_ended = recent.ended;
  client.recent_jobs_ns = std::move(recent.ns);
  if (client.active) client.active_ns = age(now_ns, slot.job_since_ns.load());
  const std::uint64_t closed_since_ns = slot.closed_since_ns.load();
  client.held_total_ns = slot.closed_ns.load() + held_ns(slot, closed_since_ns, now_ns);
  // Under policy none the gate closes too, and nobody heeds it: that is no hold.
  if (policy.kind != PolicyKind::kNone) client.holders = holders_of(board, slot.gate.load());
  if (!client.holders.empty()) client.held_ns = age(now_ns, closed_since_ns);
  client.max_hold_opened = slot.max_hold_opened.load();
  client.unhooked_lookups = slot.unhooked_lookups.load();
  client.unhooked_name = text_of(slot.unhooked_name);
  client.longest_launch_ns = slot.longest_launch_ns.load();
  client.ungated_graph_ns = slot.ungated_graph_ns.load();
  client.unknown_launches = slot.unknown_launches.load();
  client.predictions = slot.predictions.load();
  client.prediction_hits = slot.prediction_hits.load();
  client.prediction_cost_ns = slot.prediction_cost_ns.load();
  add_entries(slot, client);
  return client;
}

auto place_of(const ClientSnapshot& client) {
  return std::tuple(client.device, -client.priority, client.pid);
}

}  // namespace

bool same_client(const ClientSnapshot& a, const ClientSnapshot& b) {
  return a.slot == b.slot && a.generation == b.generation && a.pid == b.pid;
}

Snapshot take_snapshot(const Board& board, std::uint64_t now_ns) {
  Snapshot snapshot;
  snapshot.taken_ns = now_ns;
  snapshot.board_id = board.board_id.load();
  snapshot.controller_pid = board.controller_pid.load();
  snapshot.heartbeat_age_ns = age(now_ns, board.heartbeat_ns.load());
  snapshot.controller_lives =
      snapshot.controller_pid != 0 && snapshot.heartbeat_age_ns < kHeartbeatLostNs;
  snapshot.controller_starts = board.controller_starts.load();
  snapshot.max_hold_ns = board.max_hold_ns.load();
  for (std::size_t i = 0; i < board.devices.size(); ++i) {
    const Device& device = board.devices[i];
    if (device.used.load() == 0) continue;
    snapshot.devices.push_back({static_cast<int>(i), text_of(device.name),
                                base::format_uuid(device.uuid), base::is_simulated(device.uuid)});
  }
  for_each_other(board.used.load(), kControllerBit, [&](int index) {
    const auto word = board.slots[static_cast<std::size_t>(index)].info.load();
    if (SlotInfo::unpack(word).state == SlotState::kFree) return;
    snapshot.clients.push_back(read_client(board, index, now_ns));
  });
  std::stable_sort(
      snapshot.clients.begin(), snapshot.clients.end(),
      [](const ClientSnapshot& a, const ClientSnapshot& b) { return place_of(a) < place_of(b); });
  return snapshot;
}

std::string bypass_name(Count count) {
  switch (count) {
    case Count::kBypassPolicyNone:
      return "policy none";
    case Count::kBypassUnattached:
      return "not attached";
    case Count::kBypassFailedOpen:
      return "failed open";
    case Count::kBypassRefusedWait:
      return "the driver refused the wait";
    default:
      return "unknown";
  }
}

std::string state_name(const ClientSnapshot& client) {
  switch (client.state) {
    case SlotState::kReserved:
      return "starting";
    case SlotState::kFailedOpen:
      return "failed open";
    case SlotState::kLeaving:
      return "leaving";
    case SlotState::kDead:
      return "dead";
    case SlotState::kFree:
    case SlotState::kLive:
      break;
  }
  if (!client.holders.empty()) return "held";
  return client.active ? "active" : "idle";
}

}  // namespace sluice::shm
