#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string_view>

#include "base/clock.hpp"
#include "base/futex.hpp"
#include "shm/board.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"

namespace sluice::shm {

/// Whether a job of the client runs, with closed or open gates below.
inline bool has_job(const Slot& slot) noexcept {
  return is_active(slot.job.load()) || is_active(slot.open_job.load());
}

/// How long a client whose gate has been closed since `since_ns` has been held: with work
/// outstanding, under a policy that heeds the gate. 0 for an open gate (since_ns 0).
inline std::uint64_t held_ns(const Slot& slot, std::uint64_t since_ns,
                             std::uint64_t now_ns) noexcept {
  const bool heeds = Policy::unpack(slot.policy.load()).heeds_gate();
  if (since_ns == 0 || !heeds || !has_job(slot)) return 0;
  const std::uint64_t from = std::max(since_ns, slot.job_since_ns.load());
  return now_ns > from ? now_ns - from : 0;
}

/// The longest that anything can have lasted that concerns the client of a slot: since it attached,
/// by the clock of the controller. Clients write times by their own clocks, which may be wrong.
inline std::uint64_t age_ns(const Slot& slot, std::uint64_t now_ns) noexcept {
  const std::uint64_t attached_ns = slot.attached_ns.load();
  return attached_ns == 0 ? ~std::uint64_t{0} : now_ns - std::min(now_ns, attached_ns);
}

/// The text of a field that ends with NUL. A hostile process may have filled the whole field, so
/// nothing is read past it.
template <std::size_t kSize>
std::string_view text_in(const std::array<char, kSize>& field) noexcept {
  const std::string_view all(field.data(), field.size());
  return all.substr(0, all.find('\0'));
}

/// Whether the client of a slot that is live counts as alive. A reader cannot take its mutex, and
/// holds nobody: only the node service needs to see its death.
inline bool watched(const Slot& slot) noexcept {
  return slot.reader.load() != 0 || slot.alive.held();
}

/// A word of the board for gates.hpp: every access is sequentially consistent.
template <class Atomic>
class BoardWord {
 public:
  explicit BoardWord(Atomic& word) noexcept : word_(word) {}
  [[nodiscard]] std::uint64_t load() const noexcept { return word_.load(); }
  void store(std::uint64_t value) noexcept { word_.store(narrow(value)); }
  std::uint64_t fetch_or(std::uint64_t bits) noexcept { return word_.fetch_or(narrow(bits)); }
  std::uint64_t fetch_and(std::uint64_t bits) noexcept { return word_.fetch_and(narrow(bits)); }
  std::uint64_t fetch_add(std::uint64_t n) noexcept { return word_.fetch_add(narrow(n)); }
  bool compare_exchange(std::uint64_t& expected, std::uint64_t desired) noexcept {
    typename Atomic::value_type before = narrow(expected);
    const bool done = word_.compare_exchange_strong(before, narrow(desired));
    expected = before;
    return done;
  }

 private:
  static typename Atomic::value_type narrow(std::uint64_t value) noexcept {
    return static_cast<typename Atomic::value_type>(value);
  }
  Atomic& word_;
};

/// The View of gates.hpp for a real board. Wakes waiters and adds up the closed time.
class BoardView {
 public:
  explicit BoardView(Board& board) noexcept : board_(board) {}

  BoardWord<Word> info(int s) noexcept { return BoardWord(slot(s).info); }
  BoardWord<Word> job(int s) noexcept { return BoardWord(slot(s).job); }
  BoardWord<Word> gate(int s) noexcept { return BoardWord(slot(s).gate); }
  BoardWord<HalfWord> outranked(int s) noexcept { return BoardWord(slot(s).outranked); }
  BoardWord<HalfWord> draining(int s) noexcept { return BoardWord(slot(s).memory.draining); }
  BoardWord<Word> used() noexcept { return BoardWord(board_.used); }
  BoardWord<Word> waived(int target, int holder) noexcept {
    return BoardWord(slot(target).waived[static_cast<std::size_t>(holder)]);
  }
  BoardWord<HalfWord> reader(int s) noexcept { return BoardWord(slot(s).reader); }
  bool watched(int s) noexcept { return shm::watched(slot(s)); }

  void closed(int s) noexcept {
    const std::uint64_t now = base::monotonic_ns();
    slot(s).closed_since_ns.store(now);
    drop_late_time(slot(s), now);
  }

  /// The time is charged to the holder that opened the gate last: a bit of `bits`.
  void opened(int s, std::uint64_t bits) noexcept {
    Slot& opened_slot = slot(s);
    const std::uint64_t now = base::monotonic_ns();
    const std::uint64_t since = opened_slot.closed_since_ns.exchange(0);
    charge(opened_slot, bits, held_ns(opened_slot, since, now));
    // A holder may have closed the gate again before the exchange, which took the holder's time.
    std::uint64_t none = 0;
    if (opened_slot.gate.load() != 0 &&
        opened_slot.closed_since_ns.compare_exchange_strong(none, now)) {
      drop_late_time(opened_slot, now);
    }
    opened_slot.wake.fetch_add(1);
    if (opened_slot.waiters.load() != 0) base::futex_wake_all(opened_slot.wake);
  }

  /// For the owner, before its job ends or its policy changes: what it has been held until now
  /// stays counted, and is not counted again.
  void count_held(int s) noexcept {
    Slot& own = slot(s);
    const std::uint64_t now = base::monotonic_ns();
    std::uint64_t since = own.closed_since_ns.load();
    if (since == 0 || !own.closed_since_ns.compare_exchange_strong(since, now)) return;
    charge(own, own.gate.load(), held_ns(own, since, now));
  }

 private:
  static void charge(Slot& held, std::uint64_t holders, std::uint64_t ns) noexcept {
    if (ns == 0) return;
    held.closed_ns.fetch_add(ns);
    if (holders == 0) return;
    held.held_by_ns[static_cast<std::size_t>(std::countr_zero(holders))].fetch_add(ns);
  }

  /// A thread that is preempted before it writes the time may find the gate open again. The open
  /// time must not count as held.
  static void drop_late_time(Slot& of, std::uint64_t written_ns) noexcept {
    if (of.gate.load() == 0) of.closed_since_ns.compare_exchange_strong(written_ns, 0);
  }

  Slot& slot(int s) noexcept { return board_.slots[static_cast<std::size_t>(s)]; }
  Board& board_;
};

}  // namespace sluice::shm
