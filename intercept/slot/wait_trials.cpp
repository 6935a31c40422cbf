#include "intercept/slot/wait_trials.hpp"

#include <algorithm>
#include <utility>

namespace sluice::intercept {

void WaitTrials::begin(std::uint64_t since, std::uint64_t now, std::uint64_t max_hold,
                       Draw& draw) noexcept {
  if (part_ != Part::kNone || since == 0) return;
  // The holder may have looked at its clock after this client did.
  const std::uint64_t from = std::max(since, pause_from_ns_);
  if (from > now || (from == now && !proven_)) return;
  const std::uint64_t limit = proven_ ? 0 : soon_ ? kSoonNs : max_hold;
  if (now - from < limit) return;
  const bool is_new = std::exchange(wait_ns_, since) != since;
  part_since_ns_ = now;
  if (proven_ && !in_pair_ && !(is_new && ++waits_seen_ % period_ == 0)) {
    part_ = Part::kOpen;
    return;
  }
  if (!in_pair_) {
    in_pair_ = true;
    first_done_ = false;
    trial_first_ = draw.next() % 2 == 0;
  }
  part_ = trial_first_ != first_done_ ? Part::kTrial : Part::kControl;
}

void WaitTrials::look(std::uint64_t since, std::uint64_t now) noexcept {
  if (part_ == Part::kNone) return;
  const bool ended = since != wait_ns_;
  const std::uint64_t longest = part_ == Part::kOpen ? kLongestNs : kPartNs;
  if (ended || now - part_since_ns_ >= longest) part_ended(ended, now);
}

void WaitTrials::part_ended(bool with_wait, std::uint64_t now) noexcept {
  const Part part = std::exchange(part_, Part::kNone);
  if (part == Part::kOpen) {
    if (with_wait) return;
    *this = WaitTrials(now);
    return;
  }
  (part == Part::kTrial ? trial_ended_ : control_ended_) = with_wait;
  if (!std::exchange(first_done_, true)) return;
  in_pair_ = first_done_ = false;
  pair_ended();
  if (!with_wait && !proven_) pause_from_ns_ = now;
}

/// What holds for each wait, whatever the gate does, is in both parts, and so in neither bet.
void WaitTrials::pair_ended() noexcept {
  const double shown = (trial_ended_ ? 1 : 0) - (control_ended_ ? 1 : 0);
  soon_ = shown > 0;
  if (!proven_) {
    waits_.add(shown);
    proven_ = waits_.wealth() >= kSure;
    return;
  }
  constexpr double kScale = 0.85;  // of a sample of a bet
  does_not_.watch((kLeast - shown) * kScale);
  period_ = shown > 0 ? std::min(2 * period_, kLongestPeriod) : kFirstPeriod;
  if (does_not_.wealth() >= kDoubt) *this = WaitTrials();
}

}  // namespace sluice::intercept
