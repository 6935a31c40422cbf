#pragma once
#include <algorithm>

#include "intercept/slot/bet.hpp"

namespace sluice::intercept {

/// What the jobs of one program may pay for trials of gates that close later: one budget for all
/// kinds of jobs and all neighbours, so that neighbours that come and go do not pay for one search
/// each. Counted in jobs that were harmed. docs/reference/closing.md has the rule. Not thread-safe.
class TrialBudget {
 public:
  /// Paid for the search of each of the first kinds of jobs.
  static constexpr double kSearch = 64;
  static constexpr unsigned kKinds = 16;
  /// A trial that fails takes so many jobs, and begins only if they are paid for.
  static constexpr double kTrial = 16;
  static constexpr double kPerJob = 1.0 / 256;  ///< What each job pays.
  static constexpr double kMost = 128;
  static constexpr double kMostOfTrial = 32;  ///< A trial that shows nothing harms little.
  /// The wealth of a bet on harm, over the trials of several neighbours, that stops all trials.
  static constexpr double kSure = 150;

  void new_kind() noexcept {
    if (kinds_ >= kKinds) return;
    ++kinds_;
    credit_ += kSearch;
  }
  void job() noexcept { credit_ = std::max(credit_, std::min(credit_ + kPerJob, kMost)); }
  /// Negative: a trial has done no harm, and has paid too much.
  void pay(double jobs) noexcept { credit_ -= jobs; }
  [[nodiscard]] bool may_begin() const noexcept { return credit_ >= kTrial; }
  /// Also what has begun waits.
  [[nodiscard]] bool is_overdrawn() const noexcept { return credit_ <= -kMostOfTrial; }

  /// A pair of a level that pays nothing, because it is harmless at the median, and has not been
  /// shown harmless in the tail. Samples as in CloseLaw: harm is positive.
  void confirms(double median, double tail, double duration) noexcept {
    median_.watch(median);
    tail_.watch(tail);
    duration_.watch(duration);
    if (std::max({median_.wealth(), tail_.wealth(), duration_.wealth()}) < kSure) return;
    credit_ = std::min(credit_, 0.0) - kSearch;
    forget();
  }
  /// The level that harms is found. What the bets know may be of this level.
  void forget() noexcept { median_ = tail_ = duration_ = {}; }

 private:
  double credit_ = 0;  ///< Jobs.
  unsigned kinds_ = 0;
  Bet median_, tail_, duration_;  ///< Claim that trials harm, whichever neighbour is there.
};

}  // namespace sluice::intercept
