#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/turn_line.hpp"

namespace sluice::intercept {

/// Whether the GPU has come to the closed gate of a client that takes turns: then none of the
/// client's kernels runs, and the next one may begin. In front of each wait on the gate, and behind
/// a long kernel, the GPU writes a number. What it has begun after the last number of a stream
/// shows in none, so the learned duration of that work counts.
///
/// An answer that is wrong costs time only: two programs run at once for a moment, or nobody does.
class Arrivals {
 public:
  static constexpr std::size_t kStreams = std::tuple_size_v<decltype(shm::TurnLine::arrived)>;

  /// `arrived`: the words of the client's slot. `time_scale`: how many times slower than real time
  /// the device runs.
  Arrivals(const std::array<shm::TurnLine::Word, kStreams>& arrived, double time_scale) noexcept
      : arrived_(arrived), time_scale_(time_scale) {}

  // For launching threads. A stream has an index from its first wait on. What follows a number in
  // the stream waits at the gate.

  /// -1: none is left.
  [[nodiscard]] int take_index() noexcept;
  void give_back(int index) noexcept;
  /// Before a write is put into the stream: its number.
  [[nodiscard]] std::uint64_t next(int index) noexcept {
    return at(index).issued.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  /// The driver did not take the write of that number.
  void take_back(int index) noexcept { at(index).issued.fetch_sub(1, std::memory_order_relaxed); }
  /// The stream is given work of so much GPU time, which is a guess if it is not `known`, directly
  /// behind a wait or not.
  void add_work(int index, std::uint64_t ns, bool known, bool behind_wait) noexcept {
    constexpr std::uint64_t kAnyNs = 1'000'000'000;
    std::atomic<std::uint64_t>& after = at(index).after_wait_ns;
    const std::uint64_t at_most = known ? ns : kAnyNs;
    if (at_most > longest_ns_.load(std::memory_order_relaxed)) {
      longest_ns_.store(at_most, std::memory_order_relaxed);
    }
    const std::uint64_t before = behind_wait ? 0 : after.load(std::memory_order_relaxed);
    after.store(before + ns, std::memory_order_relaxed);
  }

  /// The write behind all work of the stream was put into it.
  void end_is_marked(int index) noexcept {
    at(index).after_wait_ns.store(0, std::memory_order_relaxed);
  }

  // For the thread of the client's turns.

  /// After the gate was closed. `held`: others had closed it before, so the GPU is there already.
  void gate_closed(std::uint64_t now_ns, bool held) noexcept;
  /// Whether all streams are at the gate, or idle, or wait for something that does not come:
  /// nothing has arrived for longer than the longest work takes. A stream may wait for another one
  /// that is at the gate. Call it now and then also while the gate is open: it notes which streams
  /// have come to their last wait.
  [[nodiscard]] bool complete(std::uint64_t now_ns) noexcept;
  /// The GPU was at the gate, or was not waited for any longer.
  void turn_ended(std::uint64_t now_ns) noexcept;

 private:
  /// Nothing is known yet.
  static constexpr double kFirstSeenNs = 20'000'000;
  static constexpr double kFade = 7.0 / 8;

  struct OfStream {
    std::atomic<bool> used{false};
    std::atomic<std::uint64_t> issued{0};
    std::atomic<std::uint64_t> after_wait_ns{0};  ///< Of what it was given since its last wait.
    // Of the thread of the turns.
    std::uint64_t at_last = 0;        ///< A wait that was the last one when the GPU came to it.
    std::uint64_t at_last_since = 0;  ///< Since when that is known.
    std::uint64_t when_closed = 0;    ///< The number that had arrived when the gate closed.
  };
  [[nodiscard]] OfStream& at(int index) noexcept {
    return streams_[static_cast<std::size_t>(index)];
  }
  void look(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool stands_still(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool is_there(std::size_t index, std::uint64_t now_ns) noexcept;

  const std::array<shm::TurnLine::Word, kStreams>& arrived_;
  double time_scale_;
  std::array<OfStream, kStreams> streams_;
  std::atomic<std::uint64_t> longest_ns_{0};  ///< Of a launch, of the last turns.
  std::uint64_t closed_ns_ = 0;               ///< When the gate closed.
  std::uint64_t last_arrival_ns_ = 0;         ///< Since then.
  double seen_ns_ = kFirstSeenNs;  ///< Twice what the end of a turn took, of the last turns.
  bool stood_still_ = false;
  std::uint64_t sum_ = 0;  ///< Of the numbers that had arrived at the last look.
  bool held_ = false;
};

}  // namespace sluice::intercept
