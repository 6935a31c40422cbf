#include "intercept/jobs/followers.hpp"

#include <algorithm>
#include <utility>

namespace sluice::intercept {
namespace {

constexpr int kMiss = 2;  ///< For each job that nothing follows at once, two must be followed.

}  // namespace

/// A new kind replaces the least recently used one.
Followers::Entry& Followers::find_or_replace(std::uint64_t kind) noexcept {
  Entry* oldest = &entries_.front();
  for (Entry& entry : entries_) {
    if (entry.used != 0 && entry.kind == kind) return entry;
    if (entry.used < oldest->used) oldest = &entry;
  }
  *oldest = {.kind = kind};
  return *oldest;
}

void Followers::began(std::uint64_t kind, std::uint64_t now) noexcept {
  if (std::exchange(goes_on_, false)) return;
  const bool soon = ended_ns_ != 0 && now >= ended_ns_ && now - ended_ns_ < soon_ns_;
  if (ended_ns_ != 0) {
    Entry& last = entries_[last_];
    last.sure = soon ? std::min(last.sure + 1, kMostSure) : std::max(last.sure - kMiss, 0);
    if (soon) last.next = kind;
  }
  if (!soon) {
    was_long_ = ended_ns_ == 0 || ended_ns_ - std::min(ended_ns_, chain_ns_) > longest_ns_;
    chain_ns_ = now;
  }
  Entry& entry = find_or_replace(kind);
  entry.used = ++uses_;
  last_ = static_cast<std::size_t>(&entry - entries_.data());
}

std::optional<std::uint64_t> Followers::next(std::uint64_t now) const noexcept {
  const Entry& last = entries_[last_];
  const bool is_long = now - std::min(now, chain_ns_) > longest_ns_;
  if (was_long_ || is_long || last.sure < kSure) return std::nullopt;
  return last.next;
}

}  // namespace sluice::intercept
