#include "intercept/jobs/stay_open.hpp"

#include <algorithm>

namespace sluice::intercept {
namespace {

constexpr double kMostPart = 3;     ///< A step counts as at most so long: an accident of the host.
constexpr double kNearlyAll = 0.9;  ///< The program may launch before its wait has returned.
constexpr double kWaitsFade = 64;   ///< Steps.

}  // namespace

StayOpen::Gates StayOpen::gates() const noexcept {
  if (state_ == State::kResting) return Gates::kWindows;
  const bool closed = place_ == (closed_first_ ? kHoldBlocks - 2 : kHoldBlocks - 1);
  return closed ? Gates::kClosed : Gates::kOpen;
}

void StayOpen::ended(const Step& step, bool usual) noexcept {
  if (state_ != State::kResting) {
    ns_ += step.ns;
    const bool too_long = ++steps_ > kMostSteps && state_ == State::kTrying;
    // Nobody is below who would run, and the gates have not opened at all.
    const bool nobody = usual && gates() == Gates::kOpen && step.open_part == 0;
    if (!nobody) ++block_steps_;
    if (too_long || block_steps_ > kMostOfBlock) return give_up();
    if (usual) return count(step);
    settled_ns_ = 0;  // The steps behind it may feel it.
    return;
  }
  if (!usual) return;
  if (step.open_part == 0) waited_part_ += (step.waited_part - waited_part_) / kWaitsFade;
  // A trial would harm, and gain next to nothing.
  const std::uint64_t first = waited_part_ >= kBusy && !narrow_ ? kFirstPause : kFirstSteps;
  if (++rested_ >= std::max(pause_, first) && step.may_try) begin_trial();
}

void StayOpen::begin_trial() noexcept {
  state_ = State::kTrying;
  steps_ = 0;
  ns_ = 0;
  longer_ = later_ = not_longer_ = not_later_ = {};
  begin_group();
}

/// Of a group. It has but a pair while the answer is not known, or in doubt.
std::uint64_t StayOpen::blocks() const noexcept {
  if (state_ == State::kOpen) return harmful() >= kSuspicion ? 2 : kHoldBlocks;
  const bool goes_well = not_longer_.wealth() >= kSure && not_later_.wealth() >= kLikely;
  return goes_well && harmful() < kLikely ? kLikelyBlocks : 2;
}

/// A group ends with a pair of blocks, in random order. The gates are open in all blocks before.
void StayOpen::begin_group() noexcept {
  place_ = kHoldBlocks - blocks();
  open_blocks_ = late_blocks_ = 0;
  closed_first_ = draw_.next() % 2 == 0;
  begin_block();
}

void StayOpen::ask() noexcept {
  if (state_ == State::kResting || place_ >= kHoldBlocks - 2) return;
  place_ = kHoldBlocks - 2;
  begin_block();
}

void StayOpen::begin_block() noexcept {
  block_ = {};
  settled_ns_ = 0;
  counted_ = 0;
  block_steps_ = 0;
}

void StayOpen::count(const Step& step) noexcept {
  const bool closed = gates() == Gates::kClosed;
  if (settled_ns_ == 0 || settled_ns_ < kSettleNs * time_scale_) {
    settled_ns_ += step.ns;
    return;
  }
  // A step that is very long ends after its gates have closed, and is the worst that open gates do.
  const bool opened =
      step.open_part >= kNearlyAll || (step.open_part > 0 && step.part >= kMostPart);
  if (closed ? step.open_part != 0 : !opened) {
    const std::uint64_t steps = block_steps_;
    begin_block();
    block_steps_ = steps;
    return;
  }
  block_.sum += std::min(step.part, kMostPart);
  block_.late = block_.late || step.late;
  if (++counted_ < kBlock) return;
  (closed ? closed_ : open_) = block_;
  if (!closed) {
    open_blocks_ += 1;
    late_blocks_ += block_.late ? 1 : 0;
  }
  begin_block();
  if (++place_ < kHoldBlocks) return;
  compare();
  if (state_ != State::kResting) begin_group();
}

double StayOpen::harmful() const noexcept { return std::max(longer_.wealth(), later_.wealth()); }

void StayOpen::compare() noexcept {
  if (ns_ < kSlicesNs) return;
  const double longer = open_.sum > closed_.sum * (1 + part_) ? 1 : -1;
  const double later =
      late_blocks_ / open_blocks_ - (closed_.late ? 1 : 0) - kMoreLate * double(kBlock);
  if (state_ == State::kOpen) {
    longer_.alarm(longer);
    later_.alarm(later);
    if (harmful() >= kSure) give_up();
    return;
  }
  longer_.add(longer);
  later_.add(later);
  not_longer_.add(-longer);
  not_later_.add(-later);
  if (harmful() >= kDoubt) return give_up();
  if (std::min(not_longer_.wealth(), not_later_.wealth()) < kSure) return;
  state_ = State::kOpen;
  longer_ = later_ = {};
  next_pause_ = std::max(next_pause_ / 2, kFirstPause);
}

void StayOpen::give_up() noexcept {
  state_ = State::kResting;
  rested_ = 0;
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

}  // namespace sluice::intercept
