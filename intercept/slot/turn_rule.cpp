#include "intercept/slot/turn_rule.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "intercept/slot/draw.hpp"
#include "intercept/slot/slice_rule.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"
#include "shm/slice.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

using shm::SlotInfo;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

std::uint32_t weight_of(const shm::Slot& slot) noexcept {
  return std::max(slot.requested_weight.load(), 1U);
}

/// Nobody may close the gate of a client that is drained.
bool can_take_turns(const SlotInfo& info, const shm::Slot& slot) noexcept {
  return info.state == shm::SlotState::kLive && slot.reader.load() == 0 &&
         !shm::is_draining(slot.memory.draining.load()) &&
         shm::Policy::unpack(slot.policy.load()).heeds_gate();
}

/// How long others have held the client in all.
std::uint64_t held_by_others(const shm::Slot& own, std::uint64_t now_ns) noexcept {
  return own.closed_ns.load() + shm::held_ns(own, own.closed_since_ns.load(), now_ns);
}

/// Calls `visit(slot, index)` for each other client of the device and the priority of `slot` that
/// can take turns and is not stopped.
template <class Visit>
void for_each_equal(const shm::Board& board, int slot, std::uint64_t now_ns, Visit visit) noexcept {
  const auto own = SlotInfo::unpack(board.slots[static_cast<std::size_t>(slot)].info.load());
  shm::for_each_other(board.used.load(), slot, [&](int index) {
    const shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    const SlotInfo info = SlotInfo::unpack(other.info.load());
    if (info.device != own.device || info.priority != own.priority) return;
    const bool stopped = now_ns > other.watcher_beat_ns.load() + TurnRule::kStoppedNs;
    if (!stopped && can_take_turns(info, other)) visit(other, index);
  });
}

/// Whether a client loses nothing by turns: it always has work, and is bound by the GPU. In the
/// turn of another client, the GPU is idle now and then.
bool keeps_gpu_busy(const shm::Slot& slot) noexcept {
  const bool already = slot.turn.takes.load() != 0;
  constexpr std::uint32_t kCovers = 900;
  constexpr std::uint32_t kStillCovers = 750;
  return slot.turn.covered.load() >= (already ? kStillCovers : kCovers) &&
         slot.gpu_share.load() >= (already ? SliceRule::kIdleShare : SliceRule::kBusyShare);
}

/// Whether the client would have a short slice if it ran alone below those above.
bool wants_short_slice(const shm::Slot& slot) noexcept {
  const auto state = static_cast<shm::SliceState>(slot.slice_state.load());
  return state == shm::SliceState::kSeveral || state == shm::SliceState::kShort;
}

/// Whether short slices are right but for the number of busy clients, all of which can take turns
/// at no cost. Those that use next to nothing of the GPU need not take part.
bool turns_pay(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  const auto info = SlotInfo::unpack(own.info.load());
  const auto fits = [&](const shm::Slot& client) {
    return client.reader.load() == 0 && client.turn.connected.load() == 0 &&
           wants_short_slice(client) &&
           shm::Policy::unpack(client.policy.load()).waits_on_device() && keeps_gpu_busy(client);
  };
  if (!fits(own)) return false;
  bool all = true;
  bool alone = true;
  bool above = false;
  shm::for_each_other(board.used.load(), slot, [&](int index) {
    const shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    const SlotInfo its = SlotInfo::unpack(other.info.load());
    const bool here = its.state == shm::SlotState::kLive && its.device == info.device;
    if (here && its.priority > info.priority) {
      above = above || was_there(other, now_ns, SliceRule::kPauseNs);
    } else if (here && (is_busy(other, now_ns) || fits(other))) {
      // Two whose short slices leave each other little of the GPU use little, and always have work.
      alone = false;
      all = all && its.priority == info.priority && fits(other);
    }
  });
  return all && !alone && above;
}

}  // namespace

bool should_take_turns(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  if (!can_take_turns(SlotInfo::unpack(own.info.load()), own)) return false;
  bool weighted = own.requested_weight.load() != 0;
  bool alone = true;
  for_each_equal(board, slot, now_ns, [&](const shm::Slot& other, int) {
    weighted = weighted || other.requested_weight.load() != 0;
    alone = false;
  });
  return !alone && (weighted || turns_pay(board, slot, now_ns));
}

/// What the others of the group say now.
struct TurnRule::Others {
  Others(const shm::Board& board, int slot, std::uint64_t used, std::uint64_t now_ns) noexcept {
    for_each_equal(board, slot, now_ns, [&](const shm::Slot& other, int index) {
      const std::uint32_t takes = other.turn.takes.load();
      if (takes == 0) return;
      const std::uint64_t has = other.turn.used.load();
      const bool is_first = has < used || (has == used && index < slot);
      greatest = std::max(greatest, has);
      const bool has_turn = other.turn.until_ns.load() > now_ns;
      if (has_turn) {
        until_ns = std::max(until_ns, other.turn.until_ns.load());
        is_before = is_before || is_first;
      }
      if (!shm::has_job(other)) return;
      const bool is_open = !has_turn && (other.gate.load() & shm::bit(index)) == 0;
      if (is_open) open = index;
      if (!has_turn && (is_open || (takes & kRunsOn) != 0)) ++running;
      if ((takes & kWants) == 0) return;
      greatest_weight = std::max(greatest_weight, weight_of(other));
      if (has < least) next = index;
      least = std::min(least, has);
      who_wants[static_cast<std::size_t>(wanting++)] = {index, has};
    });
  }

  /// One of those who have had the least, to half a turn, drawn at random; -1: nobody wants to run.
  /// In a fixed order, whoever follows one whose queued kernels hold up a job above would be held
  /// by that job in each of its turns.
  [[nodiscard]] int draw_next(std::uint64_t turn_ns, std::uint64_t seed) const noexcept {
    const std::uint64_t most = least + turn_ns / std::max(greatest_weight, 1U) / 2;
    const std::span all(who_wants.data(), static_cast<std::size_t>(wanting));
    const auto equal = [most](const Wanting& each) { return each.used <= most; };
    const auto count = static_cast<std::uint64_t>(std::ranges::count_if(all, equal));
    std::uint64_t chosen = count == 0 ? 0 : Draw(seed).next() % count;
    for (const Wanting& each : all) {
      if (equal(each) && chosen-- == 0) return each.index;
    }
    return -1;
  }

  /// Where one that comes begins: with the one that is next. Where all the others have no work for
  /// a moment, each of them has had what it has.
  [[nodiscard]] std::uint64_t count_now() const noexcept { return next >= 0 ? least : greatest; }

  struct Wanting {
    int index;
    std::uint64_t used;
  };
  std::array<Wanting, shm::kSlots> who_wants;
  int wanting = 0;
  int next = -1;                      ///< Of those who want to run, the one that has had least.
  int open = -1;                      ///< One that runs, because nobody had the turn.
  std::uint64_t least = kNever;       ///< What `next` has had.
  std::uint32_t greatest_weight = 0;  ///< Of those who want to run.
  std::uint64_t until_ns = 0;         ///< Until when another one has the turn; 0: nobody has it.
  bool is_before = false;             ///< Whether that one has had less than this client.
  std::uint64_t greatest = 0;         ///< What any has had, also one that has no work.
  std::uint64_t running = 0;          ///< Those without the turn whose work is on the GPU.
};

TurnRule::Decision TurnRule::look(const shm::Board& board, int slot, std::uint64_t now_ns,
                                  bool drained) noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  if (!should_take_turns(board, slot, now_ns)) {
    lose();
    Decision decision;
    decision.used = used_;
    decision.look_ns = kNever;
    return decision;
  }
  // One that was stopped has lost its turn, and has no claim to the turns of that time. Counts of
  // another device or priority mean nothing here.
  const SlotInfo info = SlotInfo::unpack(own.info.load());
  const std::uint32_t group = (std::uint32_t{info.device} << 8U) | info.priority;
  const bool stopped = now_ns - looked_ns_ > scaled(kLookNs) + kStoppedNs;
  const bool forgotten = taking_ && own.turn.takes.load() == 0;
  if (std::exchange(group_, group) != group || stopped || forgotten) lose();
  taking_ = true;
  const Others others(board, slot, used_, now_ns);
  settle(own, slot, others, drained, now_ns);
  if (others.next >= 0) {
    used_ = std::min(used_, others.least + scaled(kMostAheadNs) / weight_of(own));
  }
  looked_ns_ = now_ns;
  if (drain_ns_ != 0) {
    const std::uint64_t passed = now_ns - drain_ns_;
    const bool second = others.until_ns != 0 && others.is_before;
    const bool waits = !drained && !second && others.next >= 0;
    if (waits && passed < scaled(kMostDrainNs)) return drain(now_ns);
    charge(passed, weight_of(own));
    runs_on_ = !drained;
    return end(others, second, now_ns);
  }
  return has_turn_ ? with_turn(own, others, now_ns) : without_turn(own, others, now_ns);
}

/// The GPU divides its time among all whose work it has. So the owner of a turn gets less while
/// others have work there, and these get something outside of their turns.
void TurnRule::settle(const shm::Slot& own, int slot, const Others& others, bool drained,
                      std::uint64_t now_ns) noexcept {
  const bool has = shm::has_job(own);
  note_work(has, now_ns);
  const std::uint64_t passed = now_ns - looked_ns_;
  if (has_turn_) {
    lost_ns_ += passed * others.running / (others.running + 1);
    return;
  }
  const std::uint64_t since = open_ ? std::max(looked_ns_, own.job_since_ns.load()) : looked_ns_;
  const bool ran = runs_on_ || (open_ && has);
  const bool held = (own.gate.load() & ~shm::bit(slot)) != 0;
  const std::uint64_t sharing = 1 + others.running + (others.until_ns != 0 ? 1 : 0);
  if (ran && !held && since < now_ns) used_ += (now_ns - since) / sharing / weight_of(own);
  runs_on_ = (runs_on_ || open_) && has && !drained;
}

/// For time of its turn.
void TurnRule::charge(std::uint64_t ns, std::uint32_t weight) noexcept {
  const std::uint64_t lost = std::exchange(lost_ns_, 0);
  used_ += (ns - std::min(ns, lost)) / weight;
}

void TurnRule::note_work(bool has, std::uint64_t now_ns) noexcept {
  if (has) {
    idle_ns_ = 0;
  } else if (idle_ns_ == 0) {
    idle_ns_ = now_ns;
  }
}

TurnRule::Decision TurnRule::with_turn(const shm::Slot& own, const Others& others,
                                       std::uint64_t now_ns) noexcept {
  const std::uint64_t passed = now_ns - since_ns_;
  // A holder that dies while it opens the gate takes the time of its hold away.
  const std::uint64_t held = held_by_others(own, now_ns);
  held_ns_ = std::min(held_ns_, held);
  std::uint64_t had = std::max(passed - std::min(held - held_ns_, passed), passed / kMostTurns);
  const std::uint32_t weight = weight_of(own);
  const bool idle = idle_ns_ != 0 && now_ns - idle_ns_ >= scaled(kIdleNs);
  const std::uint64_t turn = std::max(
      scaled(kLeastTurnNs), scaled(kTurnNs) * weight / std::max(weight, others.greatest_weight));
  const bool is_second = others.until_ns != 0 && others.is_before;
  if (!idle && !is_second && had < turn) return go_on(turn - had, now_ns);
  had = std::min(had, turn + kGraceNs);
  charge(had, weight);
  const std::uint64_t half = turn / weight / 2;  // or a little that was late would double a turn
  if (!idle && !is_second && (others.next < 0 || used_ + half < others.least)) {
    begin(own, now_ns);
    return go_on(turn, now_ns);
  }
  runs_on_ = !idle;
  // Two that run at once with short slices get much less than half each.
  if (idle || is_second || others.next < 0) return end(others, is_second, now_ns);
  drain_ns_ = now_ns;
  return drain(now_ns);
}

/// The gate is closed, and nobody else begins.
TurnRule::Decision TurnRule::drain(std::uint64_t now_ns) noexcept {
  Decision decision = wait(now_ns + scaled(kDrainLookNs), now_ns);
  decision.until_ns = drain_ns_ + scaled(kMostDrainNs) + kGraceNs;
  return decision;
}

TurnRule::Decision TurnRule::end(const Others& others, bool is_second,
                                 std::uint64_t now_ns) noexcept {
  has_turn_ = false;
  drain_ns_ = 0;
  const std::uint64_t look_ns = now_ns + scaled(kLookNs);
  const bool open = others.next < 0 && !is_second;
  Decision decision = open ? run_open(look_ns) : wait(look_ns, now_ns);
  if (!is_second) decision.call = others.draw_next(scaled(kTurnNs), now_ns);
  return decision;
}

void TurnRule::lose() noexcept {
  taking_ = false;
  has_turn_ = false;
  open_ = false;
  runs_on_ = false;
  wanted_ = false;
  drain_ns_ = 0;
  lost_ns_ = 0;
}

TurnRule::Decision TurnRule::without_turn(const shm::Slot& own, const Others& others,
                                          std::uint64_t now_ns) noexcept {
  // What a client did not use while it had no work is lost, and what it used while it was alone is
  // not held against it. (This is start-time fair queuing: who comes begins where the others are.)
  // Between two jobs, every program is without work for a moment.
  const bool wants_now = idle_ns_ == 0;
  if (wants_now && !wanted_) {
    const std::uint64_t there = others.count_now();
    used_ = std::clamp(used_, there, there + scaled(kTurnNs) / weight_of(own));
  }
  const std::uint64_t idle_until = idle_ns_ + scaled(kIdleNs);
  wanted_ = wants_now || (wanted_ && now_ns < idle_until);
  // Never held: it may have work that belongs to no job, and nobody would give it a turn for that.
  if (!wanted_) return run_open(now_ns + scaled(kLookNs));
  if (others.until_ns != 0) {
    return wait(wants_now ? others.until_ns : std::min(others.until_ns, idle_until), now_ns);
  }
  if (!wants_now) return run_open(idle_until);
  begin(own, now_ns);
  Decision decision = go_on(scaled(kTurnNs), now_ns);
  decision.call = others.open;  // it closes its gate now
  return decision;
}

void TurnRule::begin(const shm::Slot& own, std::uint64_t now_ns) noexcept {
  has_turn_ = true;
  open_ = false;
  runs_on_ = false;
  since_ns_ = now_ns;
  held_ns_ = held_by_others(own, now_ns);
}

TurnRule::Decision TurnRule::taking(std::uint64_t look_ns) const noexcept {
  Decision decision;
  decision.takes = true;
  decision.wants = wanted_;
  decision.used = used_;
  decision.look_ns = look_ns;
  return decision;
}

TurnRule::Decision TurnRule::go_on(std::uint64_t left_ns, std::uint64_t now_ns) const noexcept {
  Decision decision = taking(now_ns + std::min(left_ns, scaled(kIdleNs)));
  decision.until_ns = now_ns + left_ns + kGraceNs;
  return decision;
}

/// The gate is open without a turn.
TurnRule::Decision TurnRule::run_open(std::uint64_t look_ns) noexcept {
  open_ = true;
  runs_on_ = false;
  return taking(look_ns);
}

/// The gate is closed. What runs on is charged for as long as it runs.
TurnRule::Decision TurnRule::wait(std::uint64_t look_ns, std::uint64_t now_ns) noexcept {
  open_ = false;
  Decision decision = taking(runs_on_ ? std::min(look_ns, now_ns + scaled(kIdleNs)) : look_ns);
  decision.runs = false;
  decision.runs_on = runs_on_;
  return decision;
}

}  // namespace sluice::intercept
