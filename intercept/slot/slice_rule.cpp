#include "intercept/slot/slice_rule.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "shm/gates.hpp"
#include "shm/outside_word.hpp"
#include "shm/policy.hpp"
#include "shm/slice.hpp"
#include "shm/slice_answer.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

using shm::SliceState;

/// Calls `visit(info, slot)` for each other living client of the device.
template <class Visit>
void for_each_neighbour(const shm::Board& board, int slot, Visit visit) noexcept {
  const auto& own = board.slots[static_cast<std::size_t>(slot)];
  const std::uint8_t device = shm::SlotInfo::unpack(own.info.load()).device;
  shm::for_each_other(board.used.load(), slot, [&](int index) {
    const shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    const shm::SlotInfo info = shm::SlotInfo::unpack(other.info.load());
    if (info.state == shm::SlotState::kLive && info.device == device) visit(info, other);
  });
}

bool has_steps(const shm::Slot& slot) noexcept {
  return slot.steps.state.load(std::memory_order_relaxed) !=
         static_cast<std::uint32_t>(shm::StepState::kNone);
}

/// The GPU time of a job and a half; 0 if it is not known, or fits into the driver's slice. What a
/// job takes in all would grow with what its neighbours do, and is a bound: the GPU time is also
/// that of a job that does not end. A program that is never idle has no such job, and with a slice
/// of 100 ms it would leave those below 2 % of the GPU.
std::uint32_t fitting_us(const shm::Slot& own, double time_scale) noexcept {
  constexpr std::uint64_t kFew = 20;
  const std::uint64_t ended = own.job_times.ended.load(std::memory_order_relaxed);
  if (ended < kFew || has_steps(own)) return 0;
  const std::uint64_t sum_ns = std::min(own.gpu_ns.load(std::memory_order_relaxed),
                                        own.job_times.total_ns.load(std::memory_order_relaxed));
  const double job_ns = static_cast<double>(sum_ns) / static_cast<double>(ended) / time_scale;
  const auto us = static_cast<std::uint64_t>(job_ns / 1000);
  if (us <= shm::kDriversSliceUs) return 0;
  // In steps, so that noise sets nothing.
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::bit_ceil(us * 3 / 2), SliceRule::kMostUs));
}

/// Whether the client opens the gates below for windows in its steps.
bool opens_windows(const shm::Slot& slot) noexcept {
  return slot.steps.state.load(std::memory_order_relaxed) ==
         static_cast<std::uint32_t>(shm::StepState::kWindows);
}

shm::OutsideWord outside_on(const shm::Board& board, std::uint8_t device) noexcept {
  return shm::OutsideWord::unpack(device < shm::kMaxDevices ? board.devices[device].outside.load()
                                                            : 0);
}

/// Why a short slice is wrong on the device, whoever the clients are. Without an answer the setting
/// itself is believed, which is read back.
std::optional<SliceState> obstacle_on(const shm::Board& board, std::uint8_t device) noexcept {
  if (device >= shm::kMaxDevices) return std::nullopt;
  const auto answer = shm::SliceAnswer::unpack(board.slice_answers[device].load());
  if (answer.kind == shm::SliceAnswer::Kind::kNotObeyed) return SliceState::kNotObeyed;
  if (outside_on(board, device).busy != 0) return SliceState::kOutside;
  return std::nullopt;
}

/// A longer slice than the driver's only as far as the site allows it.
std::uint32_t allowed_us(const shm::Slot& own, std::uint32_t us) noexcept {
  return shm::allowed_slice(us, own.slice_ceiling.load());
}

bool heeds_gate(const shm::Slot& slot) noexcept {
  return shm::Policy::unpack(slot.policy.load()).heeds_gate();
}

}  // namespace

bool is_busy(const shm::Slot& slot, std::uint64_t now_ns) noexcept {
  const std::uint64_t busy_ns = slot.busy_ns.load(std::memory_order_relaxed);
  return busy_ns != 0 && now_ns < busy_ns + SliceRule::kBusyNs;
}

bool was_there(const shm::Slot& slot, std::uint64_t now_ns, std::uint64_t within_ns) noexcept {
  const std::uint64_t seen_ns =
      std::max(slot.busy_ns.load(std::memory_order_relaxed), slot.job_since_ns.load());
  return shm::has_job(slot) || (seen_ns != 0 && now_ns < seen_ns + within_ns);
}

std::uint32_t GpuShare::tick(std::uint64_t gpu_ns, std::uint64_t jobs, std::uint64_t host_ns,
                             std::uint64_t waited_ns) noexcept {
  constexpr std::uint64_t kFewJobs = 8;
  constexpr std::uint64_t kShortNs = 20'000'000;
  constexpr std::uint64_t kLongNs = 500'000'000;  // of jobs that seldom end
  const std::uint64_t used_ns = gpu_ns - std::min(gpu_ns, gpu_ns_);
  const std::uint64_t worked_ns = host_ns - std::min(host_ns, host_ns_);
  const std::uint64_t longer_ns = std::max(used_ns, worked_ns);
  const std::uint64_t asleep_ns = waited_ns - std::min(waited_ns, waited_ns_);
  const bool few = jobs < jobs_ + kFewJobs && worked_ns + asleep_ns < kLongNs;
  if (few || longer_ns < kShortNs) return share_;
  const std::uint64_t waits =
      asleep_ns == 0 ? 1000 : asleep_ns * 1000 / std::max<std::uint64_t>(asleep_ns + worked_ns, 1);
  const std::uint64_t share = std::min(used_ns * 1000 / longer_ns, waits);
  const bool first =
      std::exchange(first_, false);  // the driver loads code, and durations are not known yet
  gpu_ns_ = gpu_ns;
  jobs_ = jobs;
  host_ns_ = host_ns;
  waited_ns_ = waited_ns;
  if (first || used_ns == 0) return share_;
  const auto now = static_cast<std::uint32_t>(std::max<std::uint64_t>(share, 1));
  share_ = share_ == 0 ? now : (3 * share_ + now + 2) / 4;
  return share_;
}

SliceRule::Slice SliceRule::tick(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept {
  const Slice slice = wanted(board, slot, now_ns);
  if (slice != next_) next_since_ns_ = now_ns;
  next_ = slice;
  const bool shortens = slice.us != 0 && slice.us != now_.us;
  if (!shortens || now_ns - next_since_ns_ >= kSettledNs) {
    now_ = slice;
  } else if (now_.us > shm::kDriversSliceUs && slice.us < now_.us) {
    now_ = {0, SliceState::kDriver};  // others wait for a long slice meanwhile
  }
  return now_;
}

SliceRule::Others SliceRule::look(const shm::Board& board, int slot,
                                  std::uint64_t now_ns) noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  const shm::SlotInfo info = shm::SlotInfo::unpack(own.info.load());
  Others others;
  std::uint8_t user = info.priority;
  std::uint8_t caller = info.priority;
  others.highest_living = info.priority;
  for_each_neighbour(board, slot, [&](const shm::SlotInfo& its, const shm::Slot& other) {
    const bool busy = is_busy(other, now_ns);
    const bool there = was_there(other, now_ns, kBusyNs);
    if (its.priority > info.priority) {
      others.highest_living = std::max(others.highest_living, its.priority);
      if (busy) user = std::max(user, its.priority);
      if (was_there(other, now_ns, kPauseNs)) caller = std::max(caller, its.priority);
      others.windows = others.windows || (opens_windows(other) && busy);
    } else {
      const bool equal = its.priority == info.priority;
      others.equal = others.equal || (equal && busy);
      others.below = others.below || (!equal && busy);
      others.pays = others.pays || (equal && there) || (busy && !heeds_gate(other));
    }
  });
  others.users_above = user > info.priority;
  others.highest = others.users_above ? user : caller;
  const shm::OutsideWord outside = outside_on(board, info.device);
  others.pays = others.pays || outside.busy != 0 || outside.awake != 0;
  return others;
}

SliceRule::Slice SliceRule::wanted(const shm::Board& board, int slot,
                                   std::uint64_t now_ns) noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  const std::uint32_t requested = allowed_us(own, own.requested_slice.load());
  if (requested == shm::kSliceOff) return {0, SliceState::kOff};
  const std::uint8_t priority = shm::SlotInfo::unpack(own.info.load()).priority;
  Others others = look(board, slot, now_ns);
  // A server pauses, and its next job waits for little. What is not short yet does not become so.
  const bool stays = requested != shm::kSliceAuto || now_.state == SliceState::kShort;
  if (others.highest == priority && stays) others.highest = others.highest_living;
  return others.highest > priority ? below_others(board, slot, others, now_ns)
                                   : above_others(board, slot, others);
}

SliceRule::Slice SliceRule::below_others(const shm::Board& board, int slot, const Others& others,
                                         std::uint64_t now_ns) noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  const shm::SlotInfo own_info = shm::SlotInfo::unpack(own.info.load());
  const std::uint32_t requested = allowed_us(own, own.requested_slice.load());
  if (requested != shm::kSliceAuto) return {requested, SliceState::kShort};
  // Policy none asks to be left alone; comparisons use it for a program without Sluice.
  if (!heeds_gate(own)) {
    return {0, SliceState::kOff};
  }
  if (const auto obstacle = obstacle_on(board, own_info.device)) return {0, *obstacle};
  if (others.windows) return {kInWindowUs, SliceState::kWindows};
  int busy = is_busy(own, now_ns) ? 1 : 0;
  for_each_neighbour(board, slot, [&](const shm::SlotInfo& info, const shm::Slot& other) {
    // Of those who take turns one runs.
    const bool in_turn = info.priority == own_info.priority && own.turn.takes.load() != 0 &&
                         other.turn.takes.load() != 0;
    if (info.priority < others.highest && !in_turn && is_busy(other, now_ns)) ++busy;
  });
  const SliceState state = about_those_above(board, slot, others, now_ns);
  if (state != SliceState::kShort) return {0, state};
  if (busy > 1) return {0, SliceState::kSeveral};
  return {kShortUs, state};
}

SliceRule::Slice SliceRule::above_others(const shm::Board& board, int slot,
                                         const Others& others) const noexcept {
  const shm::Slot& own = board.slots[static_cast<std::size_t>(slot)];
  const auto obstacle = obstacle_on(board, shm::SlotInfo::unpack(own.info.load()).device);
  // Next to others that are busy, a short slice would be a small part of the GPU. Where nobody is
  // below, none is needed.
  const bool alone_above = others.below && !others.equal;
  if (alone_above && opens_windows(own)) {
    return obstacle ? Slice{0, *obstacle} : Slice{kBetweenWindowsUs, SliceState::kWindows};
  }
  const bool holds_at_once = own.target.load() == 0;
  std::uint32_t us = alone_above && holds_at_once ? fitting_us(own, time_scale_) : 0;
  if (us != 0 && obstacle) return {0, *obstacle};
  // Those whose gates it closes pay nothing.
  if (others.pays) us = allowed_us(own, us);
  return {us, us != 0 ? SliceState::kLong : SliceState::kDriver};
}

/// Whether what is above keeps the GPU busy in its jobs. Where the host is slow, each launch of a
/// job would interrupt the kernel that is left below, and wait for another slice of it; the kernel
/// had better end at once. Whoever uses next to nothing of the GPU is not asked where somebody else
/// uses it.
shm::SliceState SliceRule::about_those_above(const shm::Board& board, int slot,
                                             const Others& others,
                                             std::uint64_t now_ns) const noexcept {
  const auto& own = board.slots[static_cast<std::size_t>(slot)];
  const std::uint8_t priority = shm::SlotInfo::unpack(own.info.load()).priority;
  const std::uint32_t least = now_.state == SliceState::kShort ? kIdleShare : kBusyShare;
  SliceState state = SliceState::kLearning;
  for_each_neighbour(board, slot, [&](const shm::SlotInfo& info, const shm::Slot& other) {
    const bool counts =
        others.users_above ? is_busy(other, now_ns) : was_there(other, now_ns, kBusyNs);
    if (info.priority <= priority || !counts) return;
    const std::uint32_t share = other.gpu_share.load(std::memory_order_relaxed);
    if (share == 0 || state == SliceState::kHostBound) return;
    state = share >= least ? SliceState::kShort : SliceState::kHostBound;
  });
  return state == SliceState::kLearning && now_.state == SliceState::kShort ? now_.state : state;
}

}  // namespace sluice::intercept
