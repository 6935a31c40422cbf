#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "intercept/driver/entries.hpp"

namespace sluice::intercept {

/// The index of an entry's launches in RememberedStreams::draws and LaunchDraws::drawn.
constexpr std::size_t draw_of(Entry entry) noexcept {
  return entry == Entry::cuGraphLaunch || entry == Entry::cuGraphLaunch_ptsz ? 1 : 0;
}

/// Draws some launches of one thread, for the estimate of its GPU time (gpu_time.hpp). Each drawn
/// launch stands for the launches since the one before. The distances are random, because programs
/// repeat themselves: a fixed distance could draw the same launch of each repetition.
///
/// The distances adapt to the rate of launches, so that a thread that launches rarely has every
/// launch drawn, and no thread more than one in each LaunchDraws::interval_ns for long.
class LaunchDraw {
 public:
  /// The hot path: counts a launch, and says whether it is drawn. Then take() must follow.
  [[nodiscard]] bool count() noexcept { return --left_ == 0; }
  /// For each launch with more to do; `counted`: count() was called for it. Returns for how many
  /// launches this one stands, itself included; 0 if it is not drawn.
  [[nodiscard]] std::uint32_t take(std::size_t kind, bool counted) noexcept {
    if (!counted) --left_;
    return left_ == 0 || is_due() ? draw(kind) : 0;
  }
  /// Call with the result of take() if the launch gives the GPU nothing: it does not count.
  void undo(std::uint32_t stands_for) noexcept {
    if (stands_for == 0) {
      ++left_;
    } else {
      carried_ += stands_for - 1;
    }
  }

 private:
  static constexpr std::uint32_t kLongest = 1U << 16U;
  /// Draws that a thread may make at once after a pause, so that short bursts are seen too.
  static constexpr std::uint64_t kBurst = 64;
  [[nodiscard]] bool is_due() const noexcept;
  [[nodiscard]] std::uint32_t draw(std::size_t kind) noexcept;

  std::uint32_t left_ = 1;      ///< Launches until the next draw.
  std::uint32_t distance_ = 1;  ///< From the last draw to the next one.
  std::uint32_t typical_ = 1;   ///< The distance around which the next ones are.
  std::uint32_t carried_ = 0;   ///< Launches of a draw that was undone.
  std::uint32_t random_ = 0;
  std::uint32_t request_ = 0;  ///< The last LaunchDraws::requests that was obeyed.
  std::uint64_t drawn_ns_ = 0;
  std::uint64_t budget_ns_ = 0;  ///< Each draw takes an interval from it; time fills it.
};

/// For the watcher: keeps the draws of all threads within what the process may spend, and asks for
/// a draw when launches have come without one.
class DrawRule {
 public:
  /// Call in each tick with the process's launches of one kind so far.
  void tick(std::size_t kind, std::uint64_t launches) noexcept;
  /// Call after tick() for all kinds.
  void adapt() noexcept;

 private:
  static constexpr int kTicks = 2;
  struct Seen {
    std::uint64_t launches = 0;
    std::uint32_t drawn = 0;
    int ticks = 0;  ///< Ticks in a row in which launches came and none was drawn.
  };
  std::array<Seen, 2> seen_;
  std::uint32_t drawn_before_ = 0;
};

}  // namespace sluice::intercept
