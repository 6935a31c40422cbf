#include "intercept/slot/turns.hpp"

#include <sys/prctl.h>

#include "base/clock.hpp"
#include "base/futex.hpp"
#include "intercept/driver/log.hpp"
#include "shm/gates.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

void Turns::tick(std::uint64_t now_ns) noexcept {
  const Seat& seat = client_.seat();
  if (seat.reader()) return;
  const bool should = should_take_turns(seat.board, seat.slot, now_ns);
  if (should && thread_.load() == Thread::kNone) {
    thread_.store(Thread::kWanted);
    keeper_.wake();
  }
  // The thread itself looks often enough while it takes turns.
  const bool runs = thread_.load() == Thread::kRuns;
  if (runs && should != (seat.shared().turn.takes.load() != 0)) call(seat.slot);
}

void Turns::start_if_due() noexcept {
  if (thread_.load() != Thread::kWanted) return;
  thread_.store(Thread::kRuns);
  if (start_quiet_thread("sluice-turns", [this] { run(); })) return;
  thread_.store(Thread::kNone);
  Line(Level::kWarn) << "no turns: this process has no thread left for them";
}

void Turns::run() noexcept {
  prctl(PR_SET_TIMERSLACK, 1);  // ns: whoever is next waits for the end of the turn
  const shm::HalfWord& called = client_.shared().turn.called;
  for (;;) {
    const std::uint32_t calls = called.load();
    const std::uint64_t now = base::monotonic_ns();
    const bool drained = arrivals_.complete(now);
    const bool drained_before = rule_.drains();
    const bool held = client_.gate_closed();
    const TurnRule::Decision decision =
        rule_.look(client_.seat().board, client_.seat().slot, now, drained);
    if (obey(decision)) arrivals_.gate_closed(base::monotonic_ns(), held);
    if (!rule_.drains() && drained_before) arrivals_.turn_ended(base::monotonic_ns());
    const std::uint64_t later = base::monotonic_ns();
    if (later < decision.look_ns) base::futex_wait(called, calls, decision.look_ns - later);
  }
}

/// The gate closes before the others hear of it, and opens after they do, so that two seldom run at
/// once. Returns whether it has closed the gate.
bool Turns::obey(const TurnRule::Decision& decision) noexcept {
  const int self = client_.seat().slot;
  shm::Board& board = *client_.seat().writable;
  shm::TurnLine& line = board.slots[static_cast<std::size_t>(self)].turn;
  shm::BoardView view(board);
  const bool held = (view.gate(self).load() & shm::bit(self)) != 0;
  // From here on launches are spaced, so that the gate can stop them, and the ends of jobs matter,
  // also that of a job that is open already.
  const bool takes = (view.outranked(self).load() & shm::kTakesTurns) != 0;
  if (decision.takes && !takes) {
    view.outranked(self).fetch_or(shm::kTakesTurns);
    poller_.wake();
  }
  const bool closes = !decision.runs && !held;
  if (closes) shm::close_bit(view, self, self);
  line.used.store(decision.used);
  line.until_ns.store(decision.until_ns);
  line.takes.store(decision.takes_word());
  if (decision.runs && held) shm::open_bits(view, self, shm::bit(self));
  if (!decision.takes && takes) {
    view.outranked(self).fetch_and(~std::uint64_t{shm::kTakesTurns});
  }
  if (decision.call >= 0) call(decision.call);
  return closes;
}

void Turns::call(int slot) noexcept {
  shm::HalfWord& called =
      client_.seat().writable->slots[static_cast<std::size_t>(slot)].turn.called;
  called.fetch_add(1);
  base::futex_wake_all(called);
}

}  // namespace sluice::intercept
