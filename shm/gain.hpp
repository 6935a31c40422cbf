#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include "shm/board.hpp"

/// What a session has gained: how long best effort used GPUs on which a critical client lived, and
/// what its jobs paid for that. The controller works it out (controller/ledger.hpp) and shows it in
/// a line of the board.
namespace sluice::shm {

/// Times are summed over GPUs and count only while a critical client lives on the GPU.
struct Gain {
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

  std::uint64_t since_ns = 0;  ///< CLOCK_MONOTONIC. 0: nothing is known.
  std::uint64_t shared_ns = 0;
  std::uint64_t busy_ns = 0;                ///< 0: unknown.
  std::uint64_t best_effort_ns = kUnknown;  ///< The part of `busy_ns` that best effort had.
  /// The part of `best_effort_ns` in which no job or step of a critical client wanted the GPU.
  std::uint64_t idle_before_ns = 0;
  bool measured = false;     ///< `busy_ns` is from the driver, not from learned durations.
  std::uint64_t p99_ns = 0;  ///< Of jobs next to best effort, to 1 us; 0: unknown.
  std::uint32_t percent_of_alone = 0;  ///< That p99 in 1/100 of the p99 alone; 0: unknown.
  std::uint32_t jobs_kept = 0;         ///< 1 + those in 1/10000 that kept a target; 0: no target.

  friend bool operator==(const Gain&, const Gain&) = default;
};

/// A Gain on the board. Whoever reads while the controller writes may get words of two moments.
class GainWords {
 public:
  void store(const Gain& gain) noexcept {
    const auto half = [](std::uint64_t value, std::uint64_t most) { return std::min(value, most); };
    shared_ns_.store(gain.shared_ns);
    busy_ns_.store(gain.busy_ns);
    best_effort_ns_.store(gain.best_effort_ns);
    idle_before_ns_.store(gain.idle_before_ns);
    jobs_.store(half(gain.p99_ns / 1000, kMostUs) | half(gain.percent_of_alone, kMostShort) << 31U |
                half(gain.jobs_kept, kMostShort) << 47U | std::uint64_t{gain.measured} << 63U);
    since_ns_.store(gain.since_ns);
  }
  [[nodiscard]] Gain load() const noexcept {
    const std::uint64_t jobs = jobs_.load();
    return {.since_ns = since_ns_.load(),
            .shared_ns = shared_ns_.load(),
            .busy_ns = busy_ns_.load(),
            .best_effort_ns = best_effort_ns_.load(),
            .idle_before_ns = idle_before_ns_.load(),
            .measured = (jobs >> 63U) != 0,
            .p99_ns = (jobs & kMostUs) * 1000,
            .percent_of_alone = static_cast<std::uint32_t>(jobs >> 31U & kMostShort),
            .jobs_kept = static_cast<std::uint32_t>(jobs >> 47U & kMostShort)};
  }

 private:
  static constexpr std::uint64_t kMostUs = 0x7fff'ffff;
  static constexpr std::uint64_t kMostShort = 0xffff;

  Word since_ns_, shared_ns_, busy_ns_, best_effort_ns_, jobs_, idle_before_ns_;
};
static_assert(sizeof(GainWords) <= sizeof(Board::gain));
static_assert(offsetof(Board, gain) % alignof(GainWords) == 0);

inline GainWords& gain_words(Board& board) noexcept {
  return *std::launder(reinterpret_cast<GainWords*>(board.gain.data()));
}
inline const GainWords& gain_words(const Board& board) noexcept {
  return *std::launder(reinterpret_cast<const GainWords*>(board.gain.data()));
}

}  // namespace sluice::shm
