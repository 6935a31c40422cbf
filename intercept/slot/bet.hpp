#pragma once
#include <algorithm>

namespace sluice::intercept {

/// A test of a claim that may be looked at after every sample (docs/reference/closing.md). It bets
/// a part of its wealth, which is 1 at first, on each sample. A sample is in [-1.1, 1.1], and its
/// mean, given all samples before it, is positive if the claim is true. If the claim is false, the
/// wealth ever reaches `w` with a probability of at most 1 / w, however the samples are
/// distributed.
class Bet {
 public:
  /// Bets the part that would have grown most on the samples before this one, at most half.
  void add(double sample) noexcept {
    wealth_ *= 1 + std::clamp(sum_ / (squares_ + 1), 0.0, kMostStake) * sample;
    sum_ += sample - sum_ / kMemory;
    squares_ += sample * sample - squares_ / kMemory;
  }
  /// Also forgets what it has lost: for a claim that may become true later. If the claim is false,
  /// the wealth reaches `w` after `w` samples on average, or later.
  void watch(double sample) noexcept {
    add(sample);
    wealth_ = std::max(wealth_, 1.0);
  }
  /// Also forgets the samples that lost: for a claim that may become true at once, after it was
  /// false for long. If the claim is false, the bound of watch() holds, but chance comes near it
  /// more often.
  void alarm(double sample) noexcept {
    add(sample);
    if (wealth_ <= 1 && sample < 0) *this = {};
  }
  [[nodiscard]] double wealth() const noexcept { return wealth_; }

 private:
  static constexpr double kMostStake = 0.5;
  static constexpr double kMemory = 128;  ///< Samples. What the program was long ago fades.

  double wealth_ = 1;
  double sum_ = 0;
  double squares_ = 0;
};

}  // namespace sluice::intercept
