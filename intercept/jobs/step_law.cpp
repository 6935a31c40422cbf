#include "intercept/jobs/step_law.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "intercept/jobs/least_used.hpp"

namespace sluice::intercept {
namespace {

constexpr double kKindsFade = 256;     ///< Steps after which a kind has faded.
constexpr double kWindowsFade = 1024;  ///< Windows after which what one cost has faded.
constexpr double kLevelFade = 8;
/// A step that took so many times the usual counts as one that took so many: an accident of the
/// host. What a window costs may be much more.
constexpr double kClosedOutlier = 1.5;
constexpr double kOutlier = 8;
/// A step that is longer by more than this part is a surprise.
constexpr double kSurprise = 0.25;
constexpr double kAccidentsFade = 128;
/// What is believed of windows before any was open: as much as so many of them show.
constexpr double kPriorWindows = 4;
constexpr double kPriorPrice = 1.3;
/// Windows that cost nothing take four fifths of a step.
constexpr double kLeastPrice = 1.0 / 16;
/// Of a step: by so much a late step shortens the windows of a target.
constexpr double kStride = 0.1;
constexpr double kGrowth = 1.02;
/// Steps without a window after which a target counts as missed.
constexpr std::uint64_t kMissedSteps = 512;
constexpr std::size_t kEnoughReferences = 32;

double ns(std::uint64_t value) noexcept { return static_cast<double>(value); }

template <std::size_t kSize>
std::uint64_t percentile(const LastValues<std::uint64_t, kSize>& values,
                         std::size_t per_mille) noexcept {
  const std::size_t n = values.size();
  if (n == 0) return 0;
  const std::size_t place = (n * per_mille + 999) / 1000;
  return at_place(values, std::clamp<std::size_t>(place, 1, std::max<std::size_t>(n, 2) - 1));
}

}  // namespace

void StepLaw::set(shm::Target target) noexcept {
  target_ = target;
  begin_anew();
  find_alone();
}

/// What was dear next to those before is dear until a few windows have shown more, and what they
/// have cost has to be paid all the same: neighbours that come and go are not paid for again and
/// again.
void StepLaw::neighbours(std::uint64_t id, bool narrow) noexcept {
  stay_open_.set_narrow(narrow);
  if (std::exchange(neighbours_, id) == id) return;
  begin_anew();
  constexpr double kKeptWindows = 16;
  double kept = 0;
  if (price() > kPriorPrice)
    kept = std::min(kKeptWindows * shortest_ns_ / std::max(open_sum_ns_, shortest_ns_), 1.0);
  open_sum_ns_ *= kept;
  cost_sum_ns_ *= kept;
  credit_ns_ = std::min(credit_ns_, 0.0);
  mean_cost_ = 0;
  left_out_ = surprises_ = 0;
}

const StepLaw::Entry* StepLaw::find(Kind kind) const noexcept {
  const auto* const found =
      std::find_if(entries_.begin(), entries_.end(),
                   [kind](const Entry& entry) { return kind != 0 && entry.kind == kind; });
  return found == entries_.end() ? nullptr : found;
}

StepLaw::Entry* StepLaw::find(Kind kind) noexcept {
  return const_cast<Entry*>(std::as_const(*this).find(kind));
}

/// Of kinds that are about as frequent, the longest: each step of some programs has two waits, so
/// that every other step is short.
const StepLaw::Entry& StepLaw::most_frequent() const noexcept {
  constexpr double kAbout = 0.75;
  double most = 0;
  for (const Entry& entry : entries_) most = std::max(most, entry.weight);
  return *std::max_element(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    const auto length = [&](const Entry& entry) {
      return entry.weight >= kAbout * most ? 1 + entry.level_ns : 0;
    };
    return length(a) < length(b);
  });
}

StepLaw::Kind StepLaw::kind_of(std::uint64_t key, std::uint64_t launches) noexcept {
  constexpr double kFew = 2;
  Entry& entry = find_or_replace(entries_, [=](const Entry& each) {
    return each.key == key && std::abs(ns(launches) - each.launches) <= each.launches / 4 + kFew;
  });
  if (entry.kind == 0) {
    entry.kind = ++kinds_;
    entry.key = key;
    entry.launches = ns(launches);
  }
  entry.launches += (ns(launches) - entry.launches) / 8;
  entry.used = ++uses_;
  return entry.kind;
}

bool StepLaw::is_usual(Kind kind) const noexcept {
  const Entry* const entry = find(kind);
  if (entry == nullptr || entry->closed.size() < kEnough) return false;
  const Entry& usual = most_frequent();
  return usual.closed.size() >= kEnough && entry->level_ns <= kLong * usual.level_ns;
}

void StepLaw::ended(Kind kind, std::uint64_t duration, std::uint64_t open, std::uint64_t waited,
                    bool alone, std::uint64_t now) noexcept {
  ++steps_;
  draw_references();
  last_kept_ = Kept::kUncounted;
  const bool after_window = std::exchange(touched_, open != 0);
  const bool touched = after_window || open != 0;
  for (Entry& entry : entries_) entry.weight -= entry.weight / kKindsFade;
  Entry* const entry = find(kind);
  if (entry == nullptr) return;
  entry->weight += 1;
  entry->all.add(duration);
  if (!touched) learn_closed(*entry, duration);
  const StayOpen::Gates before = stay_open_.gates();
  const bool usual = is_usual(kind) && entry->level_ns > 0;
  if (!usual) {
    stay_open_.ended({}, false);
    return settle_trial(before);
  }
  level_ns_ = entry->level_ns;
  if (!touched) references_.add(duration);
  now_ns_ = now;
  if (!touched && alone) alone_.add(duration, now);
  if ((!touched && alone) || alone_ns_ == 0) find_alone();
  if (!touched) learn_accidents(*entry, duration);
  // What a window delays may show in the step after it.
  const double most = kOutlier * level_ns_;
  open = std::min(open, static_cast<std::uint64_t>(most));  // The process may have been stopped.
  const double took_ns = std::min(ns(duration), most + ns(open));
  const double cost = touched ? took_ns - level_ns_ * (1 + left_out_) : 0;
  mean_cost_ += (cost / level_ns_ - mean_cost_) / kKindsFade;
  const double took = std::max(ns(duration), 1.0);
  if (stay_open_.state() == StayOpen::State::kResting) {
    learn_cost(*entry, cost, open, touched);
  } else {
    charge_trial(*entry, took_ns, touched);
  }
  if (target_.any()) return follow_target(duration, touched);
  stay_open_.ended({took, took / level_ns_, ns(open) / took, is_late(duration), ns(waited) / took,
                    debt_ns_ <= 0},
                   true);
  settle_trial(before);
}

void StepLaw::learn_closed(Entry& entry, std::uint64_t duration) noexcept {
  entry.closed.add(duration);
  if (entry.closed.size() <= kEnough) {
    entry.level_ns = ns(median_of(entry.closed));
    return;
  }
  const double counted = std::min(ns(duration), kClosedOutlier * entry.level_ns);
  entry.level_ns += (counted - entry.level_ns) / kLevelFade;
}

void StepLaw::find_alone() noexcept {
  alone_ns_ = 0;
  if (!target_.any() || alone_.size() < kEnoughReferences) return;
  alone_.confirm(now_ns_);
  const auto& known = alone_.known();
  if (known.size() >= kEnoughReferences) alone_ns_ = percentile(known, target_.per_mille);
}

/// Whether few steps that no window touched take so long.
bool StepLaw::is_late(std::uint64_t duration) const noexcept {
  constexpr double kAllowedTail = 1.05;
  if (stay_open_.state() == StayOpen::State::kResting) return false;
  return ns(duration) > kAllowedTail * ns(percentile(references_, 990));
}

/// `cost`: by what the step was longer than those of its kind of the same seconds that no window
/// touched.
void StepLaw::learn_cost(const Entry& entry, double cost, std::uint64_t open,
                         bool touched) noexcept {
  if (open != 0) {
    open_sum_ns_ += ns(open) - open_sum_ns_ / kWindowsFade;
    cost_sum_ns_ -= cost_sum_ns_ / kWindowsFade;
  }
  cost_sum_ns_ += cost;
  spent_.windows_ns += cost;
  settle(entry, cost, open, touched);
}

/// The host is late now and then, with and without windows. Of steps that no window touched, this
/// is the mean of what the level leaves out of such accidents, and of what settle() would charge
/// for them.
void StepLaw::learn_accidents(const Entry& entry, std::uint64_t duration) noexcept {
  const double took = std::min(ns(duration) / entry.level_ns, kOutlier);
  const double left_out = std::max(took - kClosedOutlier, 0.0);
  left_out_ += (left_out - left_out_) / kAccidentsFade;
  surprises_ += ((took - 1 > kSurprise ? took - 1 : 0) - surprises_) / kAccidentsFade;
}

/// Windows are charged at their price. One that cost a multiple of it is charged for that: the
/// price follows too slowly where it has changed. Of that, windows get back what steps are longer
/// by without them, or a host that is late now and then would take all windows.
void StepLaw::settle(const Entry& entry, double cost, std::uint64_t open, bool touched) noexcept {
  // Half of what a step pays is for trials that were dear.
  const double repaid = std::min(debt_ns_, part_ / 2 * entry.level_ns);
  debt_ns_ -= repaid;
  const double paid = part_ * entry.level_ns - repaid;
  const double expected = price() * ns(open);
  const bool surprises = cost > std::max(2 * expected, kSurprise * entry.level_ns);
  const double charge = (surprises ? cost : expected) - (touched ? surprises_ * entry.level_ns : 0);
  credit_ns_ =
      std::clamp(credit_ns_ + paid - charge, -2 * entry.level_ns,
                 4 * std::max(paid, price() * shortest_ns_) + 16 * surprises_ * entry.level_ns);
}

/// What the steps are lengthened by, for each ns of a window.
double StepLaw::price() const noexcept {
  const double prior = kPriorWindows * shortest_ns_;
  const double cost = cost_sum_ns_ + kPriorPrice * prior;
  return std::max(cost / (open_sum_ns_ + prior), kLeastPrice);
}

/// Each late step shortens the windows by 99 parts and each other step lengthens them by one (for
/// p99): so in the long run one step in a hundred is late, whatever the steps are like. Until the
/// first one is late, windows grow by a part of themselves. While the target cannot be kept,
/// windows open as without one, and say nothing of it.
void StepLaw::follow_target(std::uint64_t duration, bool touched) noexcept {
  const std::uint64_t limit = limit_ns();
  if (limit == 0) return;
  const bool late = duration > limit;
  last_kept_ = late ? Kept::kLate : Kept::kInTime;
  if (touched && missed()) return;
  const double percentile = target_.per_mille / 1000.0;
  never_late_ = never_late_ && !late;
  if (never_late_)
    target_window_ns_ = std::max(target_window_ns_ * (touched ? kGrowth : 1), shortest_ns_);
  target_window_ns_ += kStride * level_ns_ * ((late ? 0 : 1) - percentile);
  target_window_ns_ = std::clamp(target_window_ns_, 0.0, ns(limit));
  without_ = target_window_ns_ < shortest_ns_ ? without_ + 1 : 0;
}

std::uint64_t StepLaw::limit_ns() const noexcept {
  if (!target_.any()) return 0;
  return target_.is_relative() ? alone_ns_ / 1000 * target_.limit : target_.limit;
}

bool StepLaw::is_reference_next() const noexcept {
  if (target_.any() && target_.is_relative()) return alone_left_ != 0;
  const std::uint64_t step = steps_ % kReferencePeriod;
  return step == reference_place_ || step == reference_place_ + 1;
}

/// The places are drawn: a program may repeat itself in step with any rule. For a time alone, what
/// a window lets begin has to end first. So several steps in turn are references, and half of the
/// steps while the target is not known.
void StepLaw::draw_references() noexcept {
  constexpr double kCounted = 4;
  constexpr std::uint64_t kPart = 8;
  if (steps_ % kReferencePeriod == 0) reference_place_ = draw_.next() % (kReferencePeriod - 1);
  const double settle = kSettleNs * shortest_ns_ / ns(kShortestWindowNs);
  const auto block =
      static_cast<std::uint64_t>(kCounted + settle / std::max(level_ns_, settle / 64));
  const std::uint64_t blocks = unknown_target() ? 2 : kPart;
  if (alone_left_ != 0) {
    if (--alone_left_ == 0) alone_wait_ = 1 + draw_.next() % (2 * (blocks - 1) * block);
  } else if (alone_wait_ == 0 || --alone_wait_ == 0) {
    alone_left_ = block;
  }
}

/// A target that is not known, or that cannot be kept with closed gates either, counts as none.
bool StepLaw::follows_target() const noexcept {
  return target_.any() && limit_ns() != 0 && !missed();
}

std::uint64_t StepLaw::window_ns() const noexcept {
  // Longer than a step, which opens the next one. Another one than the last may be longer.
  constexpr double kOpen = 4;
  if (part_ <= 0) return 0;
  switch (stay_open_.gates()) {
    case StayOpen::Gates::kClosed:
      return 0;
    case StayOpen::Gates::kOpen:
      return static_cast<std::uint64_t>(std::max(kOpen * most_frequent().level_ns, shortest_ns_));
    case StayOpen::Gates::kWindows:
      return priced_window_ns();
  }
  return 0;
}

std::uint64_t StepLaw::priced_window_ns() const noexcept {
  if (is_reference_next()) return 0;
  double wanted = target_window_ns_;
  bool enough = wanted >= shortest_ns_;
  if (!follows_target() || binds_) {
    const double paid = std::max(part_ * level_ns_ / price(), shortest_ns_);
    wanted = follows_target() ? std::min(wanted, paid) : paid;
    enough = wanted >= shortest_ns_ && credit_ns_ >= price() * wanted;
  }
  return enough ? static_cast<std::uint64_t>(wanted) : 0;
}

bool StepLaw::knows_steps() const noexcept { return most_frequent().closed.size() >= kEnough; }

bool StepLaw::missed() const noexcept {
  return target_.any() && limit_ns() != 0 && without_ >= kMissedSteps;
}

std::uint32_t StepLaw::cost() const noexcept {
  return static_cast<std::uint32_t>(std::clamp(mean_cost_ * 1000, 0.0, 1e6));
}

std::array<StepLaw::Shown, 4> StepLaw::shown() const noexcept {
  std::array<const Entry*, kKinds> order{};
  double sum = 0;
  for (std::size_t i = 0; i < kKinds; ++i) {
    order[i] = &entries_[i];
    sum += entries_[i].weight;
  }
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->weight > b->weight; });
  std::array<Shown, 4> shown{};
  for (std::size_t i = 0; i < shown.size() && order[i]->all.size() != 0; ++i) {
    const Entry& entry = *order[i];
    shown[i] = {entry.kind, static_cast<std::uint32_t>(entry.weight / sum * 1000),
                median_of(entry.all), percentile(entry.all, 990)};
  }
  return shown;
}

}  // namespace sluice::intercept
