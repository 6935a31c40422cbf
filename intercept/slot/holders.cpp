#include "intercept/slot/holders.hpp"

#include <algorithm>
#include <utility>

#include "intercept/driver/log.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

/// Seven periods of a watcher. Even on a loaded machine, a thread that is ready to run gets a
/// processor in that time. With one tick before and one after, the gate opens within the promised
/// 200 ms.
constexpr std::uint64_t kStoppedNs = 140'000'000;
/// If more than two periods lie between our own ticks, we were stopped, not the holder.
constexpr std::uint64_t kLongestTickNs = 40'000'000;
/// A process that has not called off a job this long after it lapsed counts as stopped.
constexpr std::uint64_t kCalledOffNs = 100'000'000;
/// For this many ticks after the death of a watcher, other threads of its process may still write.
constexpr int kDiedTicks = 5;

/// A number that grows with every launch and every synchronising call that returns.
std::uint64_t work_of(const shm::Slot& slot) noexcept {
  std::uint64_t work = slot.syncs.load(std::memory_order_relaxed);
  for (const shm::EntryCounters& entry : slot.entries) work += entry.launches();
  return work;
}

/// A reader reports that, and the node service opens its gate.
void waive(const Seat& seat, int holder, std::uint64_t job) noexcept {
  if (seat.reader()) {
    seat.words.waived[static_cast<std::size_t>(holder)].store(job);
    return;
  }
  shm::BoardView view(*seat.writable);
  shm::waive(view, seat.slot, holder, job);
}

void honour(const Seat& seat, int holder) noexcept {
  if (seat.reader()) return waive(seat, holder, 0);
  shm::BoardView view(*seat.writable);
  shm::honour(view, seat.slot, holder);
}

}  // namespace

void Holders::tick(const Seat& seat, std::uint64_t now_ns) noexcept {
  passed_ns_ = std::min(now_ns - std::exchange(last_tick_ns_, now_ns), kLongestTickNs);
  find_dead(seat);
  const std::uint64_t watched = seat.shared().gate.load() | stopped_;
  const std::uint64_t known = std::exchange(looked_at_, watched);
  shm::for_each_other(watched, seat.slot, [&](int slot) {
    look_at(seat, slot, (known & shm::bit(slot)) == 0, now_ns);
  });
}

void Holders::find_dead(const Seat& seat) noexcept {
  const shm::Board& board = seat.board;
  const auto self = shm::SlotInfo::unpack(seat.shared().info.load());
  std::uint64_t dead = 0;
  died_ticks_ = std::max(0, died_ticks_ - 1);
  shm::for_each_other(board.used.load(), seat.slot, [&](int slot) {
    if (!seat.reader()) {
      shm::BoardView view(*seat.writable);
      shm::mark_dead(view, slot);
    }
    const auto info =
        shm::SlotInfo::unpack(board.slots[static_cast<std::size_t>(slot)].info.load());
    if (info.state != shm::SlotState::kDead) return;
    dead |= shm::bit(slot);
    const bool above = info.device == self.device && info.priority > self.priority;
    if (above && (dead_ & shm::bit(slot)) == 0) died_ticks_ = kDiedTicks;
  });
  dead_ = dead;
}

void Holders::look_at(const Seat& seat, int slot, bool is_new, std::uint64_t now_ns) noexcept {
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  Holder& holder = holders_[static_cast<std::size_t>(slot)];
  const std::uint64_t job = other.job.load();
  if (is_new || holder.job != job) {
    stopped_ &= ~shm::bit(slot);  // the waived job has ended
    holder = {job, other.watcher_beat_ns.load(), work_of(other), now_ns};
    return;
  }
  note_signs(holder, other, passed_ns_, now_ns);
  if (holder.stopped && holder.silent_ns == 0) {
    holder.stopped = false;
    holder.progress_ns = now_ns;
    stopped_ &= ~shm::bit(slot);
    honour(seat, slot);
  } else if (!holder.stopped && holder.silent_ns >= kStoppedNs) {
    holder.stopped = true;
    stopped_ |= shm::bit(slot);
    waive_stopped(seat, slot, holder);
  }
  if (!holder.stopped) enforce_max_hold(seat, slot, holder, now_ns);
}

void Holders::note_signs(Holder& holder, const shm::Slot& of, std::uint64_t passed_ns,
                         std::uint64_t now_ns) noexcept {
  const std::uint64_t beat = of.watcher_beat_ns.load();
  const std::uint64_t work = work_of(of);
  const bool lives = beat != holder.beat_ns || work != holder.work;
  if (work != holder.work) holder.progress_ns = now_ns;
  holder.silent_ns = lives ? 0 : holder.silent_ns + passed_ns;
  holder.beat_ns = beat;
  holder.work = work;
}

void Holders::waive_stopped(const Seat& seat, int slot, Holder& holder) noexcept {
  waive(seat, slot, holder.job);
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  const auto state = shm::SlotInfo::unpack(other.info.load()).state;
  if (holder.warned || state == shm::SlotState::kDead || !shm::is_active(holder.job)) return;
  holder.warned = true;
  Line(Level::kWarn) << "held by pid " << std::uint64_t{other.pid.load()} << " ("
                     << shm::text_in(other.command)
                     << "), which is stopped; running on until it continues";
}

/// Opens the gate for a job that has held it for max_hold without progress. A job that has not
/// begun is waived 0.1 s after it should have lapsed: a running process would have called it off.
void Holders::enforce_max_hold(const Seat& seat, int slot, const Holder& holder,
                               std::uint64_t now_ns) noexcept {
  const shm::Board& board = seat.board;
  if ((seat.shared().gate.load() & shm::bit(slot)) == 0) return;
  const shm::Slot& other = board.slots[static_cast<std::size_t>(slot)];
  const std::uint64_t limit = board.max_hold_ns.load();
  const std::uint64_t until = other.early_hold_until_ns.load();  // read after the job's number
  const std::uint64_t idle_ns = now_ns - holder.progress_ns;
  const bool is_void = until != 0 && now_ns > until + kCalledOffNs;
  if (!is_void && (limit == 0 || idle_ns < limit)) return;
  waive(seat, slot, holder.job);
  seat.words.max_hold_opened.fetch_add(1);
  Line(Level::kWarn) << "held for " << idle_ns / 1'000'000 << " ms without progress by pid "
                     << std::uint64_t{other.pid.load()} << " (" << shm::text_in(other.command)
                     << "); running on without waiting for that job";
}

}  // namespace sluice::intercept
