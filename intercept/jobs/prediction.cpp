#include "intercept/jobs/prediction.hpp"

#include <algorithm>
#include <cstdlib>

namespace sluice::intercept {

void Prediction::began(std::uint64_t now_ns) noexcept {
  const bool closed = state_ == State::kClosed;
  if (!closed && last_end_ns_ != 0 && now_ns < last_end_ns_ + kSameJobNs) return;
  if (closed) decide({true, now_ns - closed_ns_});
  if (state_ == State::kWatched) decide({false, 0});
  if (last_begin_ns_ != 0) intervals_[begins_++ % kKept] = now_ns - last_begin_ns_;
  last_begin_ns_ = now_ns;
  rhythm_ = find_rhythm();
  if (pause_ != 0) --pause_;
  ahead_ = 0;
  expect_next();
}

std::optional<Prediction::Rhythm> Prediction::find_rhythm() const noexcept {
  const std::size_t count = std::min(begins_, kKept);
  if (count < kEnough) return std::nullopt;
  std::array<std::uint64_t, kKept> sorted = intervals_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
  const std::uint64_t period = *middle;
  if (period > kLongestNs) return std::nullopt;

  const auto tolerance = static_cast<std::int64_t>(std::max(kToleranceNs, period / 50));
  std::array<std::int64_t, kKept> errors{};
  std::size_t regular = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t periods = (intervals_[i] + period / 2) / period;
    if (periods == 0 || periods > kMostAhead) continue;
    const auto error = static_cast<std::int64_t>(intervals_[i] - periods * period);
    if (std::abs(error) <= tolerance) errors[regular++] = error;
  }
  if (regular < kEnough) return std::nullopt;
  std::sort(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(regular));
  return Rhythm{period, errors[regular / 10], errors[regular - 1 - regular / 10]};
}

void Prediction::expect_next() noexcept {
  state_ = State::kIgnored;
  expected_.reset();
  if (!rhythm_ || pause_ != 0 || ahead_ == kMostAhead) return;
  ++ahead_;
  const std::uint64_t due = last_begin_ns_ + ahead_ * rhythm_->period_ns;
  expected_ = {due + static_cast<std::uint64_t>(rhythm_->early_ns),
               due + static_cast<std::uint64_t>(rhythm_->late_ns) + kGraceNs};
}

bool Prediction::affordable(std::uint64_t lead_ns) const noexcept {
  if (!rhythm_) return false;
  const auto early = static_cast<std::uint64_t>(std::max<std::int64_t>(-rhythm_->early_ns, 0));
  return lead_ns + early <= rhythm_->period_ns / kPaidPart;
}

void Prediction::closed(std::uint64_t now_ns) noexcept {
  state_ = State::kClosed;
  closed_ns_ = now_ns;
}

void Prediction::lapsed(std::uint64_t now_ns) noexcept {
  if (state_ == State::kClosed) decide({false, now_ns - closed_ns_});
  if (state_ == State::kWatched) decide({false, 0});
  do expect_next();
  while (expected_ && now_ns >= expected_->lapse_ns);
}

void Prediction::dropped(std::uint64_t now_ns) noexcept {
  if (state_ == State::kClosed) tally_.paid_ns += now_ns - closed_ns_;
  state_ = State::kIgnored;
}

void Prediction::decide(Outcome outcome) noexcept {
  ++tally_.made;
  tally_.hits += outcome.hit ? 1 : 0;
  tally_.paid_ns += outcome.paid_ns;
  outcomes_[decided_++ % kKept] = outcome;
  if (earns_its_keep()) {
    if (decided_ >= kKept) next_pause_ = kFirstPause;
    return;
  }
  pause_ = next_pause_;
  next_pause_ = std::min(next_pause_ * 2, kLongestPause);
  outcomes_.fill({});
  decided_ = 0;
}

bool Prediction::earns_its_keep() const noexcept {
  std::size_t hits = 0;
  std::uint64_t paid_ns = 0;
  for (const Outcome& outcome : outcomes_) {
    hits += outcome.hit ? 1 : 0;
    paid_ns += outcome.paid_ns;
  }
  return hits >= kEnough && paid_ns <= kKept * rhythm_->period_ns / kPaidPart;
}

}  // namespace sluice::intercept
