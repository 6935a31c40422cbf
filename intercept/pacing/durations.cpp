#include "intercept/pacing/durations.hpp"

#include <algorithm>

namespace sluice::intercept {
void LaunchDuration::Extremes::add(std::uint32_t ns) noexcept {
  least = std::min(least, ns);
  second = std::clamp(ns, second, most);
  most = std::max(most, ns);
}

void LaunchDuration::add_to_mean(std::uint32_t own_ns) noexcept {
  means_ = std::min(means_ + 1, kSamplesOfMean);
  const double mean = mean_.load();
  mean_.store(static_cast<std::uint32_t>(mean + (own_ns - mean) / means_ + 0.5));
}

void LaunchDuration::add_sample(std::uint32_t ns, bool behind_work, std::uint32_t own_ns) noexcept {
  if (LaunchDuration* const kind = kind_.load()) kind->add_sample(ns, behind_work, own_ns);
  std::uint32_t count = count_.load();
  const std::uint32_t usual = longest_.load();
  if (in_doubt() && (ns > 2 * std::max(usual, kFloorNs) || ns < usual / 2)) {
    count = 0;  // another kernel has the address now
  }
  if (count == 0) behind_work_ = false;
  const std::uint32_t known = longest_.load();
  if (behind_work_ && !behind_work && ns > known && ns <= known + kMostHostNs) {
    epoch_.store(code_epoch());
    return;
  }
  if (behind_work && !behind_work_) count = 0;
  if (count == 0) means_ = 0;
  add_to_mean(own_ns == 0 ? ns : own_ns);
  behind_work_ = behind_work_ || behind_work;
  if (count % kSamples == 0) {
    before_ = count == 0 ? Extremes{} : now_;
    now_ = {};
  }
  now_.add(ns);
  // The count stays in its second round, so that it never returns to 0.
  if (++count == 2 * kSamples) count = kSamples;
  count_.store(count);

  Extremes all = before_;
  all.add(now_.second);
  all.add(now_.most);
  all.least = std::min(before_.least, now_.least);
  const std::uint32_t longest = count < kFew ? all.most : all.second;
  const bool differ = longest > 2 * std::max(all.least, kFloorNs);
  differ_.store(differ);
  if (differ) split_.store(true);
  bounded_.store(false);
  longest_.store(longest);
  ns_.store(differ && count < kSamples ? kUnbounded : longest);
  epoch_.store(code_epoch());
}

void LaunchDuration::add_bound(std::uint32_t ns) noexcept {
  if (LaunchDuration* const kind = kind_.load()) kind->add_bound(ns);
  if (in_doubt() && ns > 2 * std::max(longest_.load(), kFloorNs)) {
    count_.store(0);  // another kernel may have the address now
    bounds_ = 0;
  }
  epoch_.store(code_epoch());
  if (known()) return;
  least_bound_ = bounds_++ % kBoundGroup == 0 ? ns : std::min(least_bound_, ns);
  // The first group counts from its first bound on. After that, the longest of the least bounds of
  // a few groups counts.
  constexpr std::uint32_t kGroups = 8;
  const bool first_group = bounds_ <= kBoundGroup;
  if (!first_group && bounds_ % kBoundGroup != 0) return;
  const bool anew = first_group || bounds_ / kBoundGroup % kGroups == 0;
  const std::uint32_t bound = anew ? least_bound_ : std::max(least_bound_, ns_.load());
  if (!first_group) add_to_mean(least_bound_);
  bounded_.store(true);
  longest_.store(bound);
  ns_.store(bound);
}

void LaunchDuration::assume(LaunchDuration& kind) noexcept {
  kind_.store(&kind);
  std::uint32_t unknown = kUnbounded;
  ns_.compare_exchange_strong(unknown, kind.ns());
  unknown = kUnbounded;
  longest_.compare_exchange_strong(unknown, kind.longest_ns());
}

void LaunchDuration::begin_graph(bool preemptible) noexcept {
  graph_.store(true);
  preemptible_.store(preemptible);
  ns_.store(kUnbounded);
  longest_.store(kUnbounded);
  count_.store(0);
  mean_.store(0);
  means_ = 0;
  owed_.store(0);
  differ_.store(false);
  split_.store(false);
  tried_.store(0);
  bounded_.store(false);
  bounds_ = 0;
}

LaunchDuration* LaunchDurations::find_slowly(const Work& work, std::uint64_t key,
                                             std::uint64_t behind) noexcept {
  LaunchDuration* const duration = find_by(key, work, true);
  if (duration == nullptr || !duration->is_split()) return duration;
  LaunchDuration* const own = find_in(table_, mix(key, behind), true);
  if (own == nullptr) return duration;  // the table is full: the shared duration must do
  if (!own->known()) own->assume(*duration);
  return own;
}

LaunchDuration* LaunchDurations::find_by(std::uint64_t key, const Work& work, bool add) noexcept {
  if (LaunchDuration* const duration = find_in(table_, key, add)) return duration;
  Work any_shape;
  any_shape.function = work.function;
  return find_in(any_shape_, key_of(any_shape), add);
}

LaunchDuration* LaunchDurations::find_in(std::vector<LaunchDuration>& table, std::uint64_t key,
                                         bool add) noexcept {
  constexpr std::size_t kTries = 32;
  for (std::size_t i = 0; i < kTries; ++i) {
    LaunchDuration& place = table[(key + i) & (table.size() - 1)];
    std::uint64_t found = place.key_.load(std::memory_order_relaxed);
    if (found == 0 && !add) return nullptr;
    if (found == 0 && place.key_.compare_exchange_strong(found, key)) return &place;
    if (found == key) return &place;
  }
  return nullptr;
}

}  // namespace sluice::intercept
