#include "intercept/jobs/budget.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "intercept/jobs/least_used.hpp"

namespace sluice::intercept {
namespace {

constexpr double kPriorPrice = 1.3;
constexpr double kPriorWindows = 8;
constexpr double kLeastRatio = 0.2;
constexpr double kPriceFadeNs = 120e9;  ///< Also while no window opens.
/// A window needs no more credit than so many times what it was thought to cost at first. What it
/// does cost is charged.
constexpr double kDear = 2;
constexpr double kItemsFade = 32;
constexpr std::uint32_t kEnough = 4;  ///< Items of a kind.
/// An item counts as at most so many times the mean, or so long if that is more: the process may
/// have been stopped.
constexpr double kOutlier = 8;
constexpr double kOutlierNs = 500e6;
/// Where the host becomes so much slower or faster within a group, it shows nothing of windows.
constexpr double kSamePace = 1.4;
constexpr double kLongestHungerNs = 4e9;
constexpr double kHungerPerDebt = 4;
constexpr double kGroupsFade = 32;
constexpr double kMostDebtNs = 4e9;
constexpr double kSurprise = 4;
constexpr double kSurpriseNs = 100e6;
/// A tick of the watcher is much shorter: the process was stopped.
constexpr std::uint64_t kMostTickNs = 1'000'000'000;
constexpr double kSliceNs = 2e6;  ///< The driver's.
constexpr std::uint32_t kMostOthers = 3;
constexpr double kShownNs = 10e9;

double since(std::uint64_t now, std::uint64_t begin) noexcept {
  return static_cast<double>(now - std::min(now, begin));
}

}  // namespace

/// What was dear next to those before is dear until it is known better, so that neighbours that
/// come and go are not paid for again and again.
void Budget::neighbours(std::uint64_t id, std::uint64_t overrun, std::uint32_t others) noexcept {
  overrun_ns_ = static_cast<double>(overrun) * scale_;
  others_ = std::min(others, kMostOthers);
  if (std::exchange(neighbours_, id) == id) return;
  if (ratio() < 1) cost_sum_ns_ = prior_sum_ns_ = 0;
}

/// Where others take turns on the GPU, those below have it some slices after a window has opened.
double Budget::shortest_ns() const noexcept {
  const double turns = others_ == 0 ? 0 : (1 + others_) * kSliceNs;
  return (kShortestNs + turns) * scale_;
}

double Budget::settle_ns() const noexcept { return std::max(kSettleNs * scale_, 2 * overrun_ns_); }

/// What a window is thought to cost before any was open: those below have the GPU, the longest
/// work that it lets begin ends behind it, and the GPU switches twice.
double Budget::prior_cost(double window) const noexcept {
  return kPriorPrice * window + overrun_ns_;
}

/// What windows cost, divided by that.
double Budget::ratio() const noexcept {
  const double prior = kPriorWindows * prior_cost(std::max(window_ns_, shortest_ns()));
  return std::max((cost_sum_ns_ + prior) / (prior_sum_ns_ + prior), kLeastRatio);
}

/// Open gates feed those below once they have been open for half of a window. What they got is as
/// good as windows, for some time to come.
void Budget::count_open(double passed) noexcept {
  const double useful = shortest_ns() / 2;
  const double got = open_ns_ < useful ? open_ns_ + passed : passed;
  open_ns_ += passed;
  if (open_ns_ < useful) return;
  last_open_ns_ = now_ns_;
  fed_ns_ = std::min(fed_ns_ + got, part_ * kReachNs * scale_);
  credit_ns_ = std::max(std::min(credit_ns_, 0.0), credit_ns_ - got);
}

/// What others give is used up first. A debt is paid back all the same.
void Budget::count_closed(double passed) noexcept {
  const double fade = passed / (kPriceFadeNs * scale_);
  cost_sum_ns_ -= cost_sum_ns_ * fade;
  prior_sum_ns_ -= prior_sum_ns_ * fade;
  double paid = part_ * passed;
  const double spared = std::min(paid, fed_ns_);
  fed_ns_ -= spared;
  if (credit_ns_ >= 0) paid -= spared;
  // Enough for the dearest window.
  const double most = std::max(part_ * kReachNs * scale_, ratio() * prior_cost(shortest_ns()));
  credit_ns_ = std::min(credit_ns_ + paid, most);
}

void Budget::go_to(std::uint64_t now) noexcept {
  const std::uint64_t before = std::exchange(now_ns_, std::max(now, now_ns_));
  if (before == 0) return;
  const double passed = static_cast<double>(std::min(now_ns_ - before, kMostTickNs));
  const double fade = std::min(passed / (kShownNs * scale_), 1.0);
  paid_ns_ += passed - paid_ns_ * fade;
  lost_ns_ -= lost_ns_ * fade;
  if (gates_ == Gates::kOpen) count_open(passed);
  if (gates_ == Gates::kClosed) count_closed(passed);
  if (gates_ == Gates::kWindow) window_ns_ += passed;
}

void Budget::charge(double cost) noexcept {
  lost_ns_ += cost;
  spent_ns_ += cost;
  credit_ns_ = std::max(credit_ns_ - cost, -kMostDebtNs * scale_);
}

/// A window is charged at once. What a group did cost is known later.
void Budget::count_window() noexcept {
  const double prior = prior_cost(window_ns_);
  charge(ratio() * prior);
  charged_ns_ += ratio() * prior;
  group_prior_ns_ += prior;
  ++windows_;
  window_end_ns_ = last_open_ns_ = now_ns_;
}

void Budget::set_gates(Gates gates, std::uint64_t now) noexcept {
  go_to(now);
  const Gates before = std::exchange(gates_, gates);
  if (before == gates) return;
  open_ns_ = 0;
  if (before == Gates::kWindow) count_window();
  if (gates != Gates::kWindow) return;
  window_ns_ = 0;
  feels_ = true;
}

void Budget::began(std::uint64_t now) noexcept {
  go_to(now);
  runs_ = true;
  began_ns_ = now;
  feels_ =
      gates_ == Gates::kWindow || (window_end_ns_ != 0 && since(now, window_end_ns_) < settle_ns());
}

/// Items of kinds that are long have windows in their middle, more of them the longer they are. So
/// they show nothing.
void Budget::ended(std::uint64_t kind_of, std::uint64_t now) noexcept {
  go_to(now);
  if (!std::exchange(runs_, false)) return;
  double took = std::max(since(now, began_ns_), 1.0);
  Kind& kind =
      find_or_replace(kinds_, [kind_of](const Kind& each) { return each.kind == kind_of; });
  kind.kind = kind_of;
  kind.used = ++uses_;
  const double mean = kind.items >= kEnough ? kind.mean_ns : any_.mean_ns;
  if (any_.items >= kEnough && mean < kLongItemNs / 2 * scale_) {
    took = std::min(took, std::max(kOutlier * mean, kOutlierNs * scale_));
    Items& items = feels_ ? touched_ : untouched_;
    items.took_ns += took;
    items.mean_ns += mean;
    ++items.count;
  }
  if (feels_) return;
  for (Kind* const each : {&kind, &any_}) {
    each->mean_ns += (took - each->mean_ns) / std::min<double>(++each->items, kItemsFade);
  }
}

void Budget::ended_elsewhere(std::uint64_t now) noexcept {
  go_to(now);
  if (!std::exchange(runs_, false)) return;
  const double paid = part_ * since(now, began_ns_);
  credit_ns_ = std::max(std::min(credit_ns_, 0.0), credit_ns_ - paid);
}

/// The items that windows touched are compared with the others before and behind them, of which
/// none was known when the windows opened. So no luck with these decides how many windows open. A
/// comparison counts the less, the more the items before and behind differ.
void Budget::settle_group() noexcept {
  const double behind = untouched_.pace();
  const double before = pace_before_;
  const bool same = std::max(behind, before) < kSamePace * std::min(behind, before);
  if (same && touched_.count != 0) {
    const double pace = (behind + before) / 2;
    const double cost = touched_.took_ns - touched_.mean_ns * pace;
    const double differ = (behind - before) / pace;
    noise_ += (differ * differ - noise_) / ++groups_;
    groups_ = std::min(groups_, kGroupsFade);
    const double noise = touched_.took_ns * touched_.took_ns * noise_;
    const double trust = charged_ns_ * charged_ns_ / (charged_ns_ * charged_ns_ + noise);
    const double counted = std::max(cost, kLeastRatio * group_prior_ns_);
    charge(trust * (counted - charged_ns_));
    if (cost > kSurprise * charged_ns_) {  // it was another neighbour before
      cost_sum_ns_ *= 1 - trust;
      prior_sum_ns_ *= 1 - trust;
    }
    cost_sum_ns_ += trust * counted;
    prior_sum_ns_ += trust * group_prior_ns_;
  }
  pace_before_ = behind;
  windows_ = 0;
  group_prior_ns_ = charged_ns_ = 0;
  touched_ = untouched_ = {};
}

/// Also a group that is not complete ends where no window has opened for long, and one that is much
/// dearer than thought ends at once.
bool Budget::pauses(std::uint64_t now) noexcept {
  if (windows_ == 0) return false;
  const double behind = since(now, window_end_ns_) - settle_ns();
  const bool enough = untouched_.count >= kPauseItems && behind >= kPauseNs * scale_;
  if (enough || behind >= kLongestPauseNs * scale_) {
    settle_group();
    return false;
  }
  const double cost = touched_.took_ns - touched_.mean_ns * pace_before_;
  const bool surprises = pace_before_ != 0 && cost > kSurprise * charged_ns_ + kSurpriseNs * scale_;
  return windows_ >= kGroup || surprises;
}

/// A debt is paid back by half of what the items pay. The other half pays for a window now and
/// then. That windows are much dearer than thought may be an accident, so it counts as much as the
/// debt that it has left.
bool Budget::is_hungry(std::uint64_t now) const noexcept {
  const double thought = prior_cost(shortest_ns()) / (part_ / 2);
  const double longest = std::max(kDear * thought, kLongestHungerNs * scale_);
  const double paid = std::clamp(ratio() * thought, kHungerNs * scale_, longest);
  return since(now, last_open_ns_) >= std::max(paid, -kHungerPerDebt * credit_ns_);
}

std::uint64_t Budget::window_ns(bool at_begin, std::uint64_t now, bool seldom) noexcept {
  go_to(now);
  if (part_ <= 0 || neighbours_ == 0 || gates_ == Gates::kWindow || !feeds()) return 0;
  const double age = std::min(since(now, began_ns_), since(now, window_end_ns_));
  if (!at_begin && (!runs_ || age < kLongItemNs * scale_)) return 0;
  const bool paused = pauses(now);
  const double affords = (credit_ns_ / ratio() - overrun_ns_) / kPriorPrice;
  double wanted = 0;
  if (affords >= shortest_ns() && !paused && !seldom) {
    wanted = std::min(affords, std::max(shortest_ns(), kLongestNs * scale_));
  } else if (is_hungry(now)) {
    wanted = shortest_ns();
  }
  return static_cast<std::uint64_t>(wanted);
}

std::uint32_t Budget::cost() const noexcept {
  const double alone = std::max(paid_ns_ - lost_ns_, 1.0);
  return static_cast<std::uint32_t>(std::clamp(lost_ns_ / alone * 1000, 0.0, 1e6));
}

}  // namespace sluice::intercept
