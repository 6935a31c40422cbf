#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "shm/board.hpp"

namespace sluice::intercept {

/// Whether a client had the GPU for itself: no neighbour of any priority ran or still runs, in or
/// outside Sluice. By the words of the board, pure (docs/reference/targets.md). What is not known
/// counts as not alone.
class Quiet {
 public:
  // Of GPU time.
  /// What runs when a gate closes may run on for so long, or for a multiple of what is known to be
  /// the longest.
  static constexpr double kDrainNs = 25e6;
  static constexpr double kLongestTimes = 4;
  /// The same, of a client whose gate does not stop what is queued.
  static constexpr double kQueuedNs = 1e9;
  /// A client may leave its last job open. If it has not launched for so long, it is idle.
  static constexpr std::uint64_t kIdleNs = 10'000'000'000;
  /// Programs outside Sluice are counted so seldom.
  static constexpr std::uint64_t kOutsideLookNs = 5'000'000'000;

  /// `time_scale`: how many times slower than real time the device runs.
  explicit Quiet(double time_scale = 1) noexcept : time_scale_(time_scale) {}

  /// The period begins.
  void begin(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept {
    before_ = look(board, slot, now_ns);
  }
  /// It ends, and the next one begins. Returns whether the client was alone.
  bool end(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept;
  /// Whether a program outside Sluice uses the device. One may have used it since kOutsideLookNs
  /// ago.
  [[nodiscard]] static bool outside(const shm::Board& board, int slot) noexcept;

 private:
  /// A number that changes when anybody else has begun to run; nothing while somebody may run.
  [[nodiscard]] std::optional<std::uint64_t> look(const shm::Board& board, int slot,
                                                  std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::optional<std::uint64_t> look_at(int index, const shm::Slot& other,
                                                     std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::uint64_t drain_ns(const shm::Slot& other) const noexcept;

  struct Seen {
    std::uint64_t launches = 0;
    std::uint64_t changed_ns = 0;
  };
  double time_scale_;
  std::array<Seen, shm::kSlots> seen_{};
  std::optional<std::uint64_t> before_;
};

}  // namespace sluice::intercept
