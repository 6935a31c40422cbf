#include "shm/snapshot.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string_view>
#include <tuple>

#include "base/processes.hpp"
#include "shm/entry_names.hpp"
#include "shm/gates.hpp"
#include "shm/memory.hpp"
#include "shm/policy.hpp"
#include "shm/slice.hpp"
#include "shm/target.hpp"
#include "shm/target_counts.hpp"
#include "shm/view.hpp"

namespace sluice::shm {
namespace {

/// Another process may be writing the text: never read past the field. On the board of a node, it
/// may be a hostile one, whose escape sequences the terminal of another user would obey.
template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& field) {
  return base::printable({field.begin(), std::find(field.begin(), field.end(), '\0')}, kSize);
}

std::uint64_t age(std::uint64_t now_ns, std::uint64_t then_ns) {
  return then_ns != 0 && now_ns > then_ns ? now_ns - then_ns : 0;
}

/// Who has the turn among the clients of the device and the priority of `self`; -1: nobody.
int owner_of_turn(const Board& board, int self, std::uint64_t now_ns) {
  const auto own = SlotInfo::unpack(board.slots[static_cast<std::size_t>(self)].info.load());
  int owner = -1;
  for_each_other(board.used.load(), self, [&](int index) {
    const Slot& slot = board.slots[static_cast<std::size_t>(index)];
    const auto info = SlotInfo::unpack(slot.info.load());
    const bool equal = info.device == own.device && info.priority == own.priority;
    if (equal && slot.turn.until_ns.load() > now_ns) owner = index;
  });
  return owner;
}

/// A client that waits for its turn holds itself; its holder is the one that has the turn.
std::vector<Holder> holders_of(const Board& board, int self, std::uint64_t gate,
                               std::uint64_t now_ns) {
  std::vector<Holder> holders;
  for_each_other(gate, kControllerBit, [&](int index) {
    const int holder = index == self ? owner_of_turn(board, self, now_ns) : index;
    if (holder < 0) return holders.push_back({0, 0, "a change of turns", "a change of turns"});
    const Slot& slot = board.slots[static_cast<std::size_t>(holder)];
    holders.push_back({slot.pid.load(), SlotInfo::unpack(slot.info.load()).priority,
                       text_of(slot.name), text_of(slot.command)});
  });
  if ((gate & bit(kControllerBit)) != 0)
    holders.push_back({0, 0, "the controller", "the controller"});
  return holders;
}

void add_entries(const Slot& slot, ClientSnapshot& client) {
  for (std::size_t i = 0; i < kEntryNames.size(); ++i) {
    EntrySnapshot entry{std::string(kEntryNames[i]), 0, {}};
    for (std::size_t c = 0; c < entry.counts.size(); ++c) {
      entry.counts[c] = slot.entries[i].value(static_cast<Count>(c));
    }
    // Of the same looks, because the client launches on.
    constexpr auto kKinds = static_cast<std::ptrdiff_t>(Count::kLaunchKinds);
    entry.launches =
        std::accumulate(entry.counts.begin(), entry.counts.begin() + kKinds, std::uint64_t{0});
    if (entry.launches == 0) continue;
    client.launches += entry.launches;
    client.bypassed += entry.launches - entry.count(Count::kGated) - entry.count(Count::kCaptured);
    client.waits += entry.count(Count::kWaited);
    client.entries.push_back(std::move(entry));
  }
}

GiveSnapshot give_of(const Slot& slot) {
  GiveSnapshot give;
  give.most = unpack_give(slot.requested_give.load());
  give.known = slot.gives_known.load() != 0;
  if (!give.known) return give;
  give.closing = slot.gives_closing.load();
  give.windows = slot.gives_windows.load();
  give.open = slot.gives_open.load();
  return give;
}

/// A state that a newer or a broken client wrote is not shown as a known one.
TargetState target_state_of(const Slot& slot) {
  const std::uint32_t state = slot.target_state.load();
  return state <= static_cast<std::uint32_t>(TargetState::kMissed) ? static_cast<TargetState>(state)
                                                                   : TargetState::kNone;
}

TargetSnapshot target_of(const Slot& slot) {
  TargetSnapshot target;
  target.text = to_string(Target::unpack(slot.target.load()));
  target.requested = to_string(Target::unpack(slot.requested_target.load()));
  target.state = target_state_of(slot);
  target.limit_ns = slot.target_ns.load();
  target.alone_ns = slot.alone_ns.load();
  const TargetCounts& before = slot.before_target;
  target.jobs = of_target(slot.target_jobs, before.jobs);
  target.kept = std::min(of_target(slot.target_kept, before.kept), target.jobs);
  target.open_ns = of_target(slot.open_ns, before.open_ns);
  target.total_ns = of_target(slot.target_total_ns, before.total_ns);
  target.all_jobs = slot.target_jobs.load();
  target.all_kept = std::min(slot.target_kept.load(), target.all_jobs);
  target.gates_open = is_active(slot.open_job.load());
  return target;
}

StepsSnapshot steps_of(const StepTimes& steps) {
  StepsSnapshot found;
  const std::uint32_t state = steps.state.load();
  if (state <= static_cast<std::uint32_t>(StepState::kOpen)) {
    found.state = static_cast<StepState>(state);
  }
  LastDurations::Recent recent = steps.last.recent(steps.seen);
  found.ended = steps.ended.load();
  found.seen = recent.ended;
  found.recent_ns = std::move(recent.ns);
  found.total_ns = steps.total_ns.load();
  found.open_ns = steps.open_ns.load();
  found.windows = steps.windows.load();
  found.window_ns = std::uint64_t{steps.window_us.load()} * 1000;
  found.cost = steps.cost.load();
  for (const StepTimes::Kind& kind : steps.kinds) {
    if (kind.name.load() == 0) break;
    found.kinds.push_back({kind.name.load(), kind.share.load(),
                           std::uint64_t{kind.p50_us.load()} * 1000,
                           std::uint64_t{kind.p99_us.load()} * 1000});
  }
  return found;
}

MemorySnapshot memory_snapshot_of(const Board& board, SlotOf client, std::uint64_t now_ns) {
  const Slot& slot = board.slots[static_cast<std::size_t>(client.slot)];
  const MemoryLine& line = slot.memory;
  const ClientMemory now = memory_of(board, client);
  MemorySnapshot memory;
  memory.held_bytes = now.held;
  memory.peak_bytes = line.peak.load();
  if (limit_of(slot) != kNoLimit) memory.limit_bytes = limit_of(slot);
  if (now.grant != kNoLimit) memory.grant_bytes = now.grant;
  const Order order = pending_order(board, client);
  if (order.kind != MemoryOrder::kNone) {
    memory.order = order_name(order.kind);
    memory.order_age_ns = age(now_ns, line.order_ns.load());
  }
  memory.base_bytes = now.base;
  memory.slope_bytes = now.slope;
  memory.refused_launches = line.refused.load();
  memory.refused_allocations = line.refused_allocations.load();
  return memory;
}

/// Who held the client of this slot. A hold that lasts counts for one of its holders, as it will
/// when the gate opens. Holders write these times by their own clocks: none can be longer than the
/// client has been there.
std::vector<Wait> waits_of(const Board& board, const Slot& slot, std::uint64_t now_ns) {
  const std::uint64_t gate = slot.gate.load();
  const std::uint64_t most_ns = age_ns(slot, now_ns);
  const std::uint64_t running_ns = held_ns(slot, slot.closed_since_ns.load(), now_ns);
  std::vector<Wait> waits;
  for (int holder = 0; holder <= kControllerBit; ++holder) {
    std::uint64_t ns = slot.held_by_ns[static_cast<std::size_t>(holder)].load();
    if (gate != 0 && std::countr_zero(gate) == holder) ns += running_ns;
    ns = std::min(ns, most_ns);
    if (ns == 0) continue;
    if (holder == kControllerBit) {
      waits.push_back({holder, 0, "the controller", ns});
      continue;
    }
    const Slot& other = board.slots[static_cast<std::size_t>(holder)];
    if (&other == &slot) {
      waits.push_back({holder, 0, "the turns of others", ns});
      continue;
    }
    const bool ended = SlotInfo::unpack(other.info.load()).state == SlotState::kFree;
    if (!ended) waits.push_back({holder, other.pid.load(), text_of(other.name), ns});
  }
  return waits;
}

void sort_longest_first(std::vector<Wait>& waits) {
  std::stable_sort(waits.begin(), waits.end(),
                   [](const Wait& a, const Wait& b) { return a.ns > b.ns; });
}

/// Writes down what each client made the others wait.
void add_held_others(Snapshot& snapshot) {
  for (ClientSnapshot& holder : snapshot.clients) {
    for (const ClientSnapshot& held : snapshot.clients) {
      for (const Wait& wait : held.held_by) {
        if (wait.slot != holder.slot || held.slot == holder.slot) continue;
        holder.held_others.push_back({held.slot, held.pid, held.name, wait.ns});
      }
    }
    sort_longest_first(holder.held_others);
  }
}

std::uint64_t sum_of(const std::vector<Wait>& waits) {
  return std::accumulate(waits.begin(), waits.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Wait& wait) { return sum + wait.ns; });
}

ClientSnapshot read_client(const Board& board, int index, std::uint64_t now_ns) {
  const Slot& slot = board.slots[static_cast<std::size_t>(index)];
  const SlotInfo info = SlotInfo::unpack(slot.info.load());
  ClientSnapshot client;
  client.slot = index;
  client.generation = info.generation;
  client.pid = slot.pid.load();
  client.uid = slot.uid.load();
  client.name = text_of(slot.name);
  client.command = text_of(slot.command);
  client.labels = parse_labels(text_of(slot.label));
  client.device = info.device;
  client.priority = info.priority;
  const Policy policy = Policy::unpack(slot.policy.load());
  client.policy = to_string(policy);
  client.requested_policy = to_string(Policy::unpack(slot.requested_policy.load()));
  client.state = info.state;
  client.skipped_waits = slot.skipped_waits.load();
  const std::uint32_t waits = slot.waited_for.load();
  if (waits != 0 && waits <= kSlots) client.waited_for_pid = board.slots[waits - 1].pid.load();
  client.stalled_streams = slot.stalled_streams.load();
  client.slice = slice_text(slot.requested_slice.load());
  client.slice_us = slot.slice_us.load();
  client.slice_state = static_cast<SliceState>(slot.slice_state.load());
  client.mps = MpsWord::unpack(slot.mps.load());
  client.weight = slot.requested_weight.load();
  client.takes_turns = slot.turn.takes.load() != 0;
  client.has_turn = client.takes_turns && slot.turn.until_ns.load() > now_ns;
  client.waits_for_turn = (slot.gate.load() & bit(index)) != 0;
  client.gpu_share = slot.gpu_share.load();
  client.close = CloseWord::unpack(slot.close_state.load());
  client.close_low_us = static_cast<std::int32_t>(slot.close_low_us.load());
  client.close_high_us = static_cast<std::int32_t>(slot.close_high_us.load());
  client.steps = steps_of(slot.steps);
  const std::uint64_t job = slot.job.load();
  client.target = target_of(slot);
  client.give = give_of(slot);
  // The owner writes one word after the other.
  client.waits_for_gpu = {slot.items.load(), slot.items_ns.load(), slot.items_waited_ns.load()};
  client.memory = memory_snapshot_of(board, {index, info.generation}, now_ns);
  client.gpu_ns = slot.gpu_ns.load();
  client.gpu_bound_ns = std::min(slot.gpu_bound_ns.load(), client.gpu_ns);
  client.active = is_active(job) || client.target.gates_open;
  client.attached_ns = age(now_ns, slot.attached_ns.load());
  JobTimes::Recent recent = slot.job_times.recent();
  client.jobs_ended = recent.ended;
  client.jobs_total_ns = slot.job_times.total_ns.load();
  client.recent_jobs_ns = std::move(recent.ns);
  const auto lasted = [&](std::uint64_t ns) { return std::min(ns, age_ns(slot, now_ns)); };
  if (client.active) client.active_ns = lasted(age(now_ns, slot.job_since_ns.load()));
  const std::uint64_t closed_since_ns = slot.closed_since_ns.load();
  client.held_total_ns = lasted(slot.closed_ns.load() + held_ns(slot, closed_since_ns, now_ns));
  client.held_by = waits_of(board, slot, now_ns);
  sort_longest_first(client.held_by);
  // Under policy none the gate closes too, and nobody heeds it: that is no hold.
  if (policy.heeds_gate()) client.holders = holders_of(board, index, slot.gate.load(), now_ns);
  if (!client.holders.empty()) client.held_ns = lasted(age(now_ns, closed_since_ns));
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
  snapshot.gain = gain_words(board).load();
  for (std::size_t i = 0; i < board.devices.size(); ++i) {
    const Device& device = board.devices[i];
    if (device.used.load() == 0) continue;
    snapshot.devices.push_back({static_cast<int>(i), text_of(device.name),
                                base::format_uuid(device.uuid), base::is_simulated(device.uuid),
                                SliceAnswer::unpack(board.slice_answers[i].load())});
  }
  for_each_other(board.used.load(), kControllerBit, [&](int index) {
    const auto word = board.slots[static_cast<std::size_t>(index)].info.load();
    if (SlotInfo::unpack(word).state == SlotState::kFree) return;
    snapshot.clients.push_back(read_client(board, index, now_ns));
  });
  add_held_others(snapshot);
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
    case Count::kBypassRefusedWait:
      return "the driver refused the wait";
    default:
      return "unknown";
  }
}

std::uint64_t held_by_ended_ns(const ClientSnapshot& client) {
  const std::uint64_t known = sum_of(client.held_by);
  return client.held_total_ns > known ? client.held_total_ns - known : 0;
}

std::uint64_t held_others_ns(const ClientSnapshot& client) { return sum_of(client.held_others); }

std::string step_state_name(StepState state) {
  switch (state) {
    case StepState::kNone:
      return "none";
    case StepState::kLearning:
      return "learning";
    case StepState::kWindows:
      return "windows";
    case StepState::kNoWindow:
      return "closed";
    case StepState::kJobs:
      return "jobs";
    case StepState::kTriesOpen:
      return "trying";
    case StepState::kOpen:
      return "open";
  }
  return "none";
}

std::string target_state_name(TargetState state) {
  switch (state) {
    case TargetState::kLearning:
      return "learning";
    case TargetState::kKept:
      return "kept";
    case TargetState::kMissed:
      return "missed";
    case TargetState::kNone:
      break;
  }
  return "none";
}

std::string order_name(MemoryOrder kind) {
  switch (kind) {
    case MemoryOrder::kShrink:
      return "shrink";
    case MemoryOrder::kDrop:
      return "drop";
    case MemoryOrder::kSleep:
      return "sleep";
    case MemoryOrder::kEpoch:
      return "epoch";
    case MemoryOrder::kNone:
      break;
  }
  return "none";
}

std::string state_name(const ClientSnapshot& client) {
  switch (client.state) {
    case SlotState::kReserved:
      return "starting";
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
