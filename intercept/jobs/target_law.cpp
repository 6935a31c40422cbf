#include "intercept/jobs/target_law.hpp"

#include <algorithm>
#include <utility>

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kFirstStepNs = 50'000;

/// Whether this job is the one in kReferencePeriod that runs with closed gates. Its place differs
/// from period to period: every sixteenth job of a program may be of one kind.
bool is_chosen(std::uint64_t job) noexcept {
  const std::uint64_t period = job / TargetLaw::kReferencePeriod;
  return job % TargetLaw::kReferencePeriod == period * 7 % TargetLaw::kReferencePeriod;
}

/// The percentile of durations, without the few that took many times the median. Never the longest:
/// it may be an accident.
template <std::size_t kSize>
std::uint64_t percentile_of(const LastValues<std::uint64_t, kSize>& values,
                            std::uint32_t per_mille) noexcept {
  LastValues<std::uint64_t, kSize> usual;
  const std::uint64_t longest = median_of(values) * TargetLaw::kOutlier;
  for (const std::uint64_t each : values) {
    if (each <= longest) usual.add(each);
  }
  constexpr std::size_t kFew = 16;  // where more than one in 16 is that long, the program is so
  if ((values.size() - usual.size()) * kFew > values.size()) usual = values;
  const std::size_t n = usual.size();
  const std::size_t place = (n * per_mille + 999) / 1000;
  return at_place(usual, std::clamp<std::size_t>(place, 1, std::max<std::size_t>(n, 2) - 1));
}

}  // namespace

/// When all places are taken, every second point goes, and later points are twice as far apart.
void TargetLaw::Curve::add(Point point, std::uint64_t& step_ns) noexcept {
  if (size == kPoints) {
    for (std::size_t i = 0; i < kPoints / 2; ++i) points[i] = points[2 * i];
    size = kPoints / 2;
    step_ns *= 2;
  }
  points[size++] = point;
}

std::optional<std::uint64_t> TargetLaw::Curve::left_at(std::uint64_t launches) const noexcept {
  const auto* const end = points.begin() + size;
  const auto* const after = std::find_if(
      points.begin(), end, [launches](const Point& point) { return point.launches >= launches; });
  if (after == end) return std::nullopt;
  const std::uint64_t total = points[size - 1].ns;
  if (after->launches == launches || after == points.begin()) return total - after->ns;
  const Point& before = *(after - 1);
  const double part = static_cast<double>(launches - before.launches) /
                      static_cast<double>(after->launches - before.launches);
  const double reached =
      static_cast<double>(before.ns) + part * static_cast<double>(after->ns - before.ns);
  return total - static_cast<std::uint64_t>(reached);
}

void TargetLaw::set(shm::Target target) noexcept {
  target_ = target;
  errors_.clear();
  update();
}

/// The median of the curves, which the errors are measured from.
std::optional<std::uint64_t> TargetLaw::time_left(std::uint64_t launches) const noexcept {
  LastValues<std::uint64_t, kKept> left;
  for (const Curve& curve : curves_) {
    if (const auto each = curve.left_at(launches)) left.add(*each);
  }
  if (left.size() == 0) return std::nullopt;
  return median_of(left);
}

/// Before enough errors are known, the spread of the durations takes their place.
std::int64_t TargetLaw::margin_ns() const noexcept {
  constexpr std::size_t kFew = 16;
  if (errors_.size() >= kFew) return bound_of(errors_, target_.per_mille);
  const auto spread = percentile_of(totals_, target_.per_mille) - median_of(totals_);
  const auto least = errors_.size() == 0 ? 0 : bound_of(errors_, target_.per_mille);
  return std::max(static_cast<std::int64_t>(spread), least);
}

std::int64_t TargetLaw::slack_at(std::uint64_t now, std::uint64_t left) const noexcept {
  return static_cast<std::int64_t>(began_ns_ + limit_ns_) - static_cast<std::int64_t>(now + left) -
         margin_ns_;
}

/// Everything that follows from what was learned, once a job.
void TargetLaw::update() noexcept {
  state_ = target_.any() ? shm::TargetState::kLearning : shm::TargetState::kNone;
  limit_ns_ = target_.is_relative() ? 0 : target_.limit;
  alone_ns_ = 0;
  whole_ns_ = 0;
  if (!target_.any()) return;
  alone_.confirm(now_ns_);
  const auto& alone = alone_.known();
  if (alone.size() >= kEnough) alone_ns_ = percentile_of(alone, target_.per_mille);
  if (target_.is_relative()) limit_ns_ = alone_ns_ / 1000 * target_.limit;
  if (totals_.size() < kEnough || limit_ns_ == 0) return;
  margin_ns_ = margin_ns();
  whole_ns_ = time_left(0).value_or(0);
  state_ = may_begin_open() ? shm::TargetState::kKept : shm::TargetState::kMissed;
}

bool TargetLaw::may_begin_open() const noexcept {
  return target_.any() && whole_ns_ != 0 &&
         static_cast<std::int64_t>(limit_ns_) - static_cast<std::int64_t>(whole_ns_) - margin_ns_ >
             static_cast<std::int64_t>(kLeastNs);
}

TargetLaw::Step TargetLaw::begin(std::uint64_t now, bool contended, bool closed) noexcept {
  ++jobs_;
  began_ns_ = looked_ns_ = planned_ns_ = now;
  curve_.size = 0;
  decided_ = false;
  mode_ = Mode::kReference;
  runs_ = target_.any();
  sample_ = true;
  if (!runs_) return {true, kNever};
  const bool chosen = is_chosen(jobs_) || (target_.is_relative() && is_chosen(jobs_ / kAloneBlock));
  const bool is_reference = closed || !contended || whole_ns_ == 0 || overdrawn_ ||
                            (state_ == shm::TargetState::kKept && chosen);
  if (!is_reference) {
    decided_ = true;
    expected_left_ns_ = whole_ns_;
    const std::int64_t slack = slack_at(now, whole_ns_);
    if (slack > static_cast<std::int64_t>(kLeastNs)) {
      mode_ = Mode::kOpen;
      planned_ns_ = now + static_cast<std::uint64_t>(slack);
      return {false, planned_ns_};
    }
  }
  // Progress of every job is worth its cost only until the curves are full.
  const bool sampled = curves_.size() < kKept || is_chosen(jobs_);
  if (!sampled) return {true, kNever};
  step_ns_ = kFirstStepNs;
  curve_.add({0, 0}, step_ns_);
  return {true, now + step_ns_};
}

TargetLaw::Step TargetLaw::look(std::uint64_t now, std::uint64_t launches) noexcept {
  if (mode_ == Mode::kReference && curve_.size != 0) {
    curve_.add({now - began_ns_, launches}, step_ns_);
    return {true, now + step_ns_};
  }
  if (mode_ != Mode::kOpen) return {true, kNever};
  const std::uint64_t late = now - std::min(now, planned_ns_);
  const auto left = time_left(launches);
  looked_ns_ = now - late;
  expected_left_ns_ = left.value_or(0);
  const std::int64_t slack = left ? slack_at(now, *left) : 0;
  if (slack <= static_cast<std::int64_t>(kLeastNs)) {
    mode_ = Mode::kLate;
    return {true, kNever};
  }
  planned_ns_ = now + static_cast<std::uint64_t>(slack);
  return {false, planned_ns_};
}

/// Jobs that began with open gates are no faster than the same jobs with closed gates. If they are,
/// the program has changed.
bool TargetLaw::is_faster_open() const noexcept {
  return open_.size() == kKept && totals_.size() >= kEnough &&
         percentile_of(open_, target_.per_mille) * 10 <=
             percentile_of(totals_, target_.per_mille) * 9;
}

void TargetLaw::learn_anew() noexcept {
  totals_.clear();
  alone_.clear();
  curves_.clear();
  open_.clear();
  errors_.clear();
}

void TargetLaw::learn(std::uint64_t took, std::uint64_t launches) noexcept {
  if (jobs_ <= kFirst) return;
  constexpr double kJobsFade = 16;
  const auto known = static_cast<double>(std::min(totals_.size() + 1, kKept));
  closed_ns_ += (static_cast<double>(took) - closed_ns_) / std::min(known, kJobsFade);
  totals_.add(took);
  if (curve_.size == 0) return;
  curve_.add({took, std::max(launches, curve_.points[curve_.size - 1].launches)}, step_ns_);
  curves_.add(curve_);
}

/// Only a multiple of the time alone needs it.
bool TargetLaw::wants_quiet() const noexcept {
  if (!target_.is_relative() || !target_.any()) return false;
  const std::uint64_t block = (jobs_ + 1) / kAloneBlock;
  return alone_.size() < kEnough ? block % 2 == 0 : is_chosen(block);
}

void TargetLaw::somebody_outside(std::uint64_t now) noexcept {
  now_ns_ = now;
  alone_.forget_unsure(now);
}

std::optional<bool> TargetLaw::ended(std::uint64_t now, std::uint64_t launches,
                                     bool alone) noexcept {
  now_ns_ = now;
  if (!std::exchange(runs_, false) || !target_.any()) return std::nullopt;
  const std::uint64_t took = now - began_ns_;
  std::optional<bool> kept;
  if (limit_ns_ != 0) kept = took <= limit_ns_;
  if (!sample_) return kept;
  if (decided_) {
    errors_.add(static_cast<std::int64_t>(now - looked_ns_) -
                static_cast<std::int64_t>(expected_left_ns_));
  }
  if (mode_ == Mode::kReference) {
    learn(took, launches);
    if (alone && jobs_ > kFirst) alone_.add(took, now);
  } else {
    open_.add(took);
    const double most = static_cast<double>(kOutlier) * closed_ns_;
    spent_ns_ += std::min(static_cast<double>(took) - closed_ns_, most);
  }
  if (is_faster_open()) learn_anew();
  update();
  return kept;
}

}  // namespace sluice::intercept
