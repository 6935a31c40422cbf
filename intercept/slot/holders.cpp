#include "intercept/slot/holders.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
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

/// `job` is 0 if the holder counts again. A reader reports the word, and the node service settles
/// its gate.
void write_waived(const Seat& seat, int holder, std::uint64_t job) noexcept {
  if (seat.reader()) {
    seat.words.waived[static_cast<std::size_t>(holder)].store(job);
    return;
  }
  shm::BoardView view(*seat.writable);
  shm::waive(view, seat.slot, holder, job);
}

}  // namespace

void Holders::tick(const Seat& seat, std::uint64_t now_ns) noexcept {
  passed_ns_ = std::min(now_ns - std::exchange(last_tick_ns_, now_ns), kLongestTickNs);
  find_dead(seat);
  const std::uint64_t watched = seat.shared().gate.load() | waived_ | tried_;
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
  look_at_trial(seat, slot, now_ns);
  if (is_new || holder.job != job) {
    waived_ &= ~shm::bit(slot);  // the waived job has ended
    holder = {job, other.watcher_beat_ns.load(), work_of(other), base::monotonic_ns()};
    return;
  }
  note_signs(holder, other, passed_ns_);
  look_for_reasons(seat, slot, now_ns);
}

/// This process may be stopped after it has looked at its clock. So the time of progress is read
/// after the progress.
void Holders::note_signs(Holder& holder, const shm::Slot& of, std::uint64_t passed_ns) noexcept {
  const std::uint64_t beat = of.watcher_beat_ns.load();
  const std::uint64_t work = work_of(of);
  const bool lives = beat != holder.beat_ns || work != holder.work;
  if (work != holder.work) holder.progress_ns = base::monotonic_ns();
  holder.silent_ns = lives ? 0 : holder.silent_ns + passed_ns;
  holder.beat_ns = beat;
  holder.work = work;
}

/// A job that has not begun is waived 0.1 s after it should have lapsed: a running process would
/// have called it off. It counts again when it begins, which changes `early_hold_until_ns`.
void Holders::look_for_reasons(const Seat& seat, int slot, std::uint64_t now_ns) noexcept {
  Holder& holder = holders_[static_cast<std::size_t>(slot)];
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  const std::uint64_t limit = seat.board.max_hold_ns.load();
  const std::uint64_t until = other.early_hold_until_ns.load();  // read after the job's number
  const std::uint64_t idle_ns = now_ns - std::min(now_ns, holder.progress_ns);
  const bool is_void = until != 0 && now_ns > until + kCalledOffNs;
  switch (holder.waived) {
    case Waived::kSilent:
      if (holder.silent_ns == 0) honour(seat, slot);
      return;
    case Waived::kIdle:
      if (idle_ns == 0 && !is_void) honour(seat, slot);
      return;
    case Waived::kTrial:
      return;
    case Waived::kNo:
      break;
  }
  if (holder.silent_ns >= kStoppedNs) {
    waive(seat, slot, Waived::kSilent);
    warn(seat, slot, 0);
  } else if ((seat.shared().gate.load() & shm::bit(slot)) == 0) {
    return;
  } else if (is_void || (limit != 0 && idle_ns >= limit)) {
    waive(seat, slot, Waived::kIdle);
    seat.words.max_hold_opened.fetch_add(1);
    warn(seat, slot, idle_ns);
  } else if (limit != 0) {
    begin_trial(seat, slot, now_ns);
  }
}

void Holders::waive(const Seat& seat, int slot, Waived why) noexcept {
  Holder& holder = holders_[static_cast<std::size_t>(slot)];
  holder.waived = why;
  waived_ |= shm::bit(slot);
  write_waived(seat, slot, holder.job);
}

void Holders::honour(const Seat& seat, int slot) noexcept {
  Holder& holder = holders_[static_cast<std::size_t>(slot)];
  holder.waived = Waived::kNo;
  holder.progress_ns = base::monotonic_ns();
  waived_ &= ~shm::bit(slot);
  write_waived(seat, slot, 0);
}

/// Once for each job. `idle_ns` is 0 if the holder is stopped.
void Holders::warn(const Seat& seat, int slot, std::uint64_t idle_ns) noexcept {
  Holder& holder = holders_[static_cast<std::size_t>(slot)];
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  const auto state = shm::SlotInfo::unpack(other.info.load()).state;
  if (holder.warned || state == shm::SlotState::kDead || !shm::is_active(holder.job)) return;
  holder.warned = true;
  Line line(Level::kWarn);
  line << "held ";
  if (idle_ns != 0) line << "for " << idle_ns / 1'000'000 << " ms without progress ";
  line << "by pid " << std::uint64_t{other.pid.load()} << " (" << shm::text_in(other.command)
       << ")";
  line << (idle_ns == 0 ? ", which is stopped; running on until it continues"
                        : "; running on until it makes progress");
}

/// The part of a trial that runs may end, and the gate with it.
void Holders::look_at_trial(const Seat& seat, int slot, std::uint64_t now_ns) noexcept {
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  Pair& pair = pairs_[static_cast<std::size_t>(slot)];
  const bool was_proven = pair.trials.proven();
  const std::uint32_t generation = shm::SlotInfo::unpack(other.info.load()).generation;
  if (pair.generation != generation) pair = {generation, WaitTrials(now_ns)};
  pair.trials.look(other.sync_since_ns.load(), now_ns);
  say_if_proven(seat, slot, was_proven);
  if (!pair.trials.runs()) tried_ &= ~shm::bit(slot);
  const bool open = holders_[static_cast<std::size_t>(slot)].waived == Waived::kTrial;
  if (open && !pair.trials.is_open()) honour(seat, slot);
}

void Holders::begin_trial(const Seat& seat, int slot, std::uint64_t now_ns) noexcept {
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  WaitTrials& trials = pairs_[static_cast<std::size_t>(slot)].trials;
  trials.begin(other.sync_since_ns.load(), now_ns, seat.board.max_hold_ns.load(), draw_);
  if (trials.runs()) tried_ |= shm::bit(slot);
  if (trials.is_open()) waive(seat, slot, Waived::kTrial);
}

/// Says on the board, for status, whether the holder waits for this client.
void Holders::say_if_proven(const Seat& seat, int slot, bool was_proven) noexcept {
  const bool proven = pairs_[static_cast<std::size_t>(slot)].trials.proven();
  const auto named = static_cast<std::uint32_t>(slot + 1);
  if (proven == was_proven) return;
  if (proven) {
    seat.words.waited_for.store(named);
  } else if (seat.words.waited_for.load() == named) {
    seat.words.waited_for.store(0);
  }
  if (!proven) return;
  const shm::Slot& other = seat.board.slots[static_cast<std::size_t>(slot)];
  Line(Level::kWarn) << "pid " << std::uint64_t{other.pid.load()} << " ("
                     << shm::text_in(other.command)
                     << ") waits for work of this process while it holds it; it is not held while "
                     << "that process waits";
}

}  // namespace sluice::intercept
