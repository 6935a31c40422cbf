#include "intercept/jobs/followers.hpp"

#include <algorithm>
#include <utility>

#include "intercept/jobs/least_used.hpp"

namespace sluice::intercept {
namespace {

constexpr int kMiss = 2;  ///< For each job that nothing follows at once, two must be followed.

}  // namespace

void Followers::count_gap(std::uint64_t gap, bool soon) noexcept {
  const std::uint64_t held = std::exchange(held_, false) ? std::min(gap, soon_ns_) : 0;
  if (!soon) left_ns_ = std::min(left_ns_ + gap - held, most_left_ns_);
  left_ns_ -= std::min(left_ns_, held);
}

void Followers::began(std::uint64_t kind, std::uint64_t now) noexcept {
  if (std::exchange(goes_on_, false)) return;
  if (ended_ns_ != 0) {
    const std::uint64_t gap = now - std::min(now, ended_ns_);
    const bool soon = now >= ended_ns_ && gap < soon_ns_;
    count_gap(gap, soon);
    Entry& last = entries_[last_];
    last.sure = soon ? std::min(last.sure + 1, kMostSure) : std::max(last.sure - kMiss, 0);
    if (soon) last.next = kind;
  }
  Entry& entry = find_or_replace(entries_, [kind](const Entry& each) { return each.kind == kind; });
  entry.kind = kind;
  entry.used = ++uses_;
  last_ = static_cast<std::size_t>(&entry - entries_.data());
}

std::optional<std::uint64_t> Followers::next() const noexcept {
  const Entry& last = entries_[last_];
  if (left_ns_ < soon_ns_ || last.sure < kSure) return std::nullopt;
  return last.next;
}

}  // namespace sluice::intercept
