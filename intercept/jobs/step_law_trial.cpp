// What open gates cost the steps of a program, by what the same steps take with closed ones.
#include <algorithm>
#include <utility>

#include "intercept/jobs/step_law.hpp"

namespace sluice::intercept {
namespace {

/// What open gates may have cost beyond what steps pay, in steps. Then they close.
constexpr double kMostDebt = 128;
/// The same, since the last block with closed gates. Then another one comes.
constexpr double kDoubtfulDebt = 8;

}  // namespace

/// Nothing is known of open gates and of windows any more. What open gates have cost has to be paid
/// all the same.
void StepLaw::begin_anew() noexcept {
  const StayOpen::Gates before = stay_open_.gates();
  stay_open_.begin_anew();
  settle_trial(before);
  target_window_ns_ = 0;
  never_late_ = true;
  without_ = 0;
}

/// What the steps took that open gates touched, beyond what steps pay and are known to take.
double StepLaw::beyond_ns(const Entry& entry) const noexcept {
  return entry.open_ns - entry.open_steps * entry.level_ns * (1 + left_out_ + part_);
}

/// What a step takes was last seen in the last block with closed gates, and the host may have
/// become slower since. So a cost that rises asks for such a block, and is settled behind it.
void StepLaw::charge_trial(Entry& entry, double took, bool touched) noexcept {
  if (touched) {
    const double before = beyond_ns(entry);
    entry.open_ns += took;
    entry.open_steps += 1;
    unsettled_ns_ += beyond_ns(entry) - before;
  } else {
    entry.refreshed = true;
  }
  const double step_ns = most_frequent().level_ns;
  if (unsettled_ns_ >= kDoubtfulDebt * step_ns) stay_open_.ask();
  if (debt_ns_ + unsettled_ns_ >= kMostDebt * step_ns) stay_open_.give_up();
}

/// Behind a block with closed gates, and when a trial or open gates end: then also kinds of which
/// no step with closed gates has ended meanwhile. `before`: the gates, before the step ended.
void StepLaw::settle_trial(StayOpen::Gates before) noexcept {
  const bool all = stay_open_.gates() == StayOpen::Gates::kWindows;
  if (before == stay_open_.gates() || (before != StayOpen::Gates::kClosed && !all)) return;
  unsettled_ns_ = 0;
  double cost = 0;
  for (Entry& entry : entries_) {
    const bool settled = all || std::exchange(entry.refreshed, false);
    (settled ? cost : unsettled_ns_) += beyond_ns(entry);
    if (settled) spent_.open_ns += beyond_ns(entry) + entry.open_steps * entry.level_ns * part_;
    if (settled) entry.open_ns = entry.open_steps = 0;
  }
  debt_ns_ = std::clamp(debt_ns_ + cost, 0.0, kMostDebt * most_frequent().level_ns);
}

}  // namespace sluice::intercept
