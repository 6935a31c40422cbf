#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// The line of a slot about turns among clients of the same priority (docs/reference/turns.md).
/// Part of the board's layout.
namespace sluice::shm {

struct TurnLine {
  using Word = std::atomic<std::uint64_t>;
  using HalfWord = std::atomic<std::uint32_t>;

  /// Until when the client has the turn; 0: it has none. A time that is over is a turn that is
  /// void: its owner is stopped. The owner writes.
  Word until_ns;
  Word used;        ///< Time of its turns, divided by its weight. The owner writes.
  HalfWord takes;   ///< Bit 0: the client takes turns; bit 1: its work runs on; bit 2: it wants
                    /// to run. The owner writes.
  HalfWord called;  ///< Futex: whoever ends its turn counts it up, and wakes the next one.
  /// For which part of the time the client has had a job, in 1/1000, without the time for which it
  /// was held; 0: unknown. The owner writes.
  HalfWord covered;
  /// 1 once the process has opened memory or events of another process or device: its work may
  /// wait for work there. The owner writes.
  HalfWord connected;
  /// The number of the last wait on the gate that each of some streams of the owner has come to.
  /// The GPU writes, the owner reads.
  std::array<Word, 8> arrived;
  std::array<std::uint8_t, 32> reserved;
};
static_assert(sizeof(TurnLine) == 128);

}  // namespace sluice::shm
