#pragma once
#include "base/clock.hpp"
#include "base/futex.hpp"
#include "shm/board.hpp"
#include "shm/gates.hpp"

namespace sluice::shm {

/// A word of the board for gates.hpp: every access is sequentially consistent.
class BoardWord {
 public:
  explicit BoardWord(Word& word) noexcept : word_(word) {}
  [[nodiscard]] std::uint64_t load() const noexcept { return word_.load(); }
  void store(std::uint64_t value) noexcept { word_.store(value); }
  std::uint64_t fetch_or(std::uint64_t bits) noexcept { return word_.fetch_or(bits); }
  std::uint64_t fetch_and(std::uint64_t bits) noexcept { return word_.fetch_and(bits); }
  std::uint64_t fetch_add(std::uint64_t n) noexcept { return word_.fetch_add(n); }
  bool compare_exchange(std::uint64_t& expected, std::uint64_t desired) noexcept {
    return word_.compare_exchange_strong(expected, desired);
  }

 private:
  Word& word_;
};

/// The View of gates.hpp for a real board. Wakes waiters and adds up the closed time.
class BoardView {
 public:
  explicit BoardView(Board& board) noexcept : board_(board) {}

  BoardWord info(int s) noexcept { return BoardWord(slot(s).info); }
  BoardWord job(int s) noexcept { return BoardWord(slot(s).job); }
  BoardWord gate(int s) noexcept { return BoardWord(slot(s).gate); }
  BoardWord used() noexcept { return BoardWord(board_.used); }
  BoardWord waived(int target, int holder) noexcept {
    return BoardWord(slot(target).waived[static_cast<std::size_t>(holder)]);
  }

  void closed(int s) noexcept { slot(s).closed_since_ns.store(base::monotonic_ns()); }

  void opened(int s) noexcept {
    Slot& opened_slot = slot(s);
    const std::uint64_t since = opened_slot.closed_since_ns.exchange(0);
    // Closed time counts only if the client had work outstanding.
    if (since != 0 && is_active(opened_slot.job.load())) {
      opened_slot.closed_ns.fetch_add(base::monotonic_ns() - since);
    }
    opened_slot.wake.fetch_add(1);
    if (opened_slot.waiters.load() != 0) base::futex_wake_all(opened_slot.wake);
  }

 private:
  Slot& slot(int s) noexcept { return board_.slots[static_cast<std::size_t>(s)]; }
  Board& board_;
};

}  // namespace sluice::shm
