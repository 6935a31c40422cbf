#pragma once
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "shm/board.hpp"
#include "shm/memory.hpp"

namespace sluice::intercept {

/// The orders of a broker to one client: what the C API answers about them, and whether launches
/// are refused. Thread-safe; makes no driver call.
///
/// Launches are refused from the first one that finds such an order until the program reports that
/// it has dropped the micro-batch. In between nothing is let through, whatever else happens: the
/// broker may die, give another order or take the order back. Otherwise work could run on data that
/// was left half made.
class Orders {
 public:
  /// `writable` and `words`: see Seat.
  Orders(const shm::Board& board, shm::Board* writable, shm::Slot& words,
         shm::SlotOf client) noexcept;

  /// Whether a launch must be refused now. One load unless an order may be pending.
  [[nodiscard]] bool refuse() noexcept {
    const bool may = (shared_.outranked.load(std::memory_order_relaxed) & shm::kOrdered) != 0;
    return may && refuse_slowly();
  }
  /// Around a call of the program that waits for its GPU work: when it began, if the program obeys
  /// an order meanwhile; else 0.
  [[nodiscard]] std::uint64_t begin_wait() const noexcept {
    return obeys_.load(std::memory_order_relaxed) ? base::monotonic_ns() : 0;
  }
  void end_wait(std::uint64_t began_ns) noexcept {
    if (began_ns == 0) return;
    copy_order();
    shm::note_waited(line_, began_ns, base::monotonic_ns());
  }
  /// A launch was refused.
  void count_refused() noexcept { line_.refused.fetch_add(1, std::memory_order_relaxed); }

  /// What the user or the site lets this client hold, whatever its priority, and what a broker
  /// does. In bytes; shm::kNoLimit: no limit.
  [[nodiscard]] std::uint64_t limit() const noexcept { return shm::limit_of(shared_); }
  [[nodiscard]] std::uint64_t granted() const noexcept { return shm::grant_of(board_, client_); }

  // The functions of sluice.h, which has their contracts.
  [[nodiscard]] std::uint64_t grant() noexcept;
  [[nodiscard]] std::uint64_t held() const noexcept { return line_.held.load(); }
  void fit(std::uint64_t base, std::uint64_t slope) noexcept;
  [[nodiscard]] std::uint64_t pending() noexcept;
  void done(std::uint64_t order) noexcept;
  [[nodiscard]] bool wait_resume(std::uint64_t timeout_ns) noexcept;
  void critical(bool begin) noexcept;
  [[nodiscard]] std::uint64_t refused_allocations() const noexcept {
    return line_.refused_allocations.load();
  }

  /// Whether an allocation beyond the grant is let through all the same: an optimizer step cannot
  /// be repeated. The first one of a step is refused, so that the program's allocator frees its
  /// cache.
  [[nodiscard]] bool may_exceed() noexcept {
    return state_.load() == kCritical && exceeds_.exchange(true);
  }
  /// Allocations were refused, by the limit or the grant.
  void count_refused_allocations(std::uint32_t count) noexcept {
    line_.refused_allocations.fetch_add(count, std::memory_order_relaxed);
  }

  /// For the watcher, on each tick.
  void tick() noexcept;

 private:
  // state_ is 0, kCritical, or kRefusing with the epoch of the order above it.
  static constexpr std::uint64_t kCritical = 1;
  static constexpr std::uint64_t kRefusing = 2;
  static constexpr unsigned kEpochShift = 2;

  [[nodiscard]] bool refuse_slowly() noexcept;
  [[nodiscard]] bool must_refuse() const noexcept;
  [[nodiscard]] shm::Order pending_order() const noexcept;
  void copy_order() noexcept;
  void settle_ordered() noexcept;
  void know_orders() noexcept;

  const shm::Board& board_;
  shm::Board* writable_;
  shm::SlotOf client_;
  shm::Slot& slot_;
  shm::MemoryLine& line_;
  const shm::Slot& shared_;
  std::atomic<std::uint64_t> state_{0};
  /// From the first refusal, or from when the program heard of an order, until it has obeyed.
  std::atomic<bool> obeys_{false};
  std::atomic<bool> exceeds_{false};  ///< This step has been refused an allocation.
  std::atomic<std::uint32_t> seen_;   ///< MemoryLine::wake at the last news that the program got.
};

}  // namespace sluice::intercept
