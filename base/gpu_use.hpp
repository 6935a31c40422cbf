#pragma once
#include <algorithm>
#include <cstdint>

namespace sluice::base {

/// Whether somebody uses a GPU, and does not only have a context there.
///
/// A leaky bucket: GPU time fills it, and 3 % of the time that passes flows out. So whoever uses
/// less than 1 % never fills it, with many short kernels or with a few long ones, even if the
/// estimate of the time is three times too long, as next to other programs.
class GpuUse {
 public:
  static constexpr std::uint64_t kPercent = 3;
  /// So much GPU time at once, after a pause, is still no use.
  static constexpr std::uint64_t kEnoughNs = 250'000'000;
  /// The use ends when so much is left, two seconds after the last work.
  static constexpr std::uint64_t kStillNs = 230'000'000;
  static constexpr std::uint64_t kFullNs = 290'000'000;
  /// Work that is queued, so that a long kernel is use until its end. It is credited with a quarter
  /// of the time: others may run at the same time.
  static constexpr std::uint64_t kMostQueuedNs = 10'000'000'000;
  static constexpr std::uint64_t kQueuePart = 4;

  /// `used_ns`: GPU time that was given, or seen to be used, in the last `passed_ns`. `queued`:
  /// work that was given may still run. Returns uses().
  bool add(std::uint64_t used_ns, std::uint64_t passed_ns, bool queued = false) noexcept {
    level_ns_ = std::min(level_ns_ + std::min(used_ns, kMostQueuedNs), kMostQueuedNs);
    if (level_ns_ <= kFullNs) {
      level_ns_ -= std::min(level_ns_, passed_ns / 100 * kPercent);
    } else {
      const std::uint64_t left_ns = level_ns_ - std::min(level_ns_, passed_ns / kQueuePart);
      level_ns_ = queued ? std::max(left_ns, kFullNs) : kFullNs;
    }
    uses_ = level_ns_ >= (uses_ ? kStillNs : kEnoughNs);
    return uses_;
  }
  [[nodiscard]] bool uses() const noexcept { return uses_; }

 private:
  std::uint64_t level_ns_ = 0;
  bool uses_ = false;
};

}  // namespace sluice::base
