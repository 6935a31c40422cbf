#include "intercept/pacing/launch_draw.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/driver/process.hpp"

namespace sluice::intercept {

bool LaunchDraw::is_due() const noexcept {
  return request_ != g_process.draws.requests.load(std::memory_order_relaxed);
}

std::uint32_t LaunchDraw::draw(std::size_t kind) noexcept {
  const std::uint32_t stands_for = distance_ - left_ + std::exchange(carried_, 0);
  g_process.draws.drawn[kind].fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t interval = g_process.draws.interval_ns.load(std::memory_order_relaxed);
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t full = kBurst * interval;
  budget_ns_ = std::min(full, budget_ns_ + (now - std::exchange(drawn_ns_, now)));
  budget_ns_ -= std::min(budget_ns_, interval);
  if (is_due()) {
    request_ = g_process.draws.requests.load(std::memory_order_relaxed);
    typical_ = 1;
  } else if (budget_ns_ < full / 4) {
    // Slowly, because the launches behind a program's last draw are missing.
    typical_ = std::min(typical_ + typical_ / 4 + 1, kLongest);
  } else if (budget_ns_ > full / 4 * 3) {
    typical_ = std::max(typical_ / 2, 1U);
  }
  // A linear congruential generator (Numerical Recipes); its high bits are the random ones.
  random_ = random_ * 1'664'525U + 1'013'904'223U;
  const std::uint64_t part = std::uint64_t{typical_} * random_ >> 32U;
  distance_ = std::max(typical_ / 2 + static_cast<std::uint32_t>(part), 1U);
  left_ = distance_;
  return stands_for;
}

void DrawRule::tick(std::size_t kind, std::uint64_t launches) noexcept {
  Seen& seen = seen_[kind];
  const std::uint32_t drawn = g_process.draws.drawn[kind].load(std::memory_order_relaxed);
  const bool missed = launches != seen.launches && drawn == seen.drawn;
  seen.launches = launches;
  seen.drawn = drawn;
  seen.ticks = missed ? seen.ticks + 1 : 0;
  if (seen.ticks < kTicks) return;
  seen.ticks = 0;
  g_process.draws.requests.fetch_add(1);
  g_process.forget_remembered();  // so that the next launch of each thread sees the request
}

void DrawRule::adapt() noexcept {
  constexpr std::uint32_t kPerTick = 160;
  constexpr std::uint32_t kMostNs = LaunchDraws::kIntervalNs * 64;
  std::uint32_t drawn = 0;
  for (const auto& each : g_process.draws.drawn) drawn += each.load(std::memory_order_relaxed);
  const std::uint32_t made = drawn - std::exchange(drawn_before_, drawn);
  const std::uint32_t interval = g_process.draws.interval_ns.load(std::memory_order_relaxed);
  if (made > kPerTick && interval < kMostNs) {
    g_process.draws.interval_ns.store(interval * 2);
  } else if (made < kPerTick / 4 && interval > LaunchDraws::kIntervalNs) {
    g_process.draws.interval_ns.store(interval / 2);
  }
}

}  // namespace sluice::intercept
