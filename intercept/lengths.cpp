#include "intercept/lengths.hpp"

#include <algorithm>

namespace sluice::intercept {
namespace {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15;
  hash = (hash ^ word) * kOdd;
  return hash ^ (hash >> 29U);
}

}  // namespace

Length::Frozen Length::frozen() noexcept {
  std::uint64_t frozen = 0;
  const std::uint64_t wanted = std::uint64_t{longest_ns()} << 32U | ns();  // never 0
  if (frozen_.compare_exchange_strong(frozen, wanted)) frozen = wanted;
  return {static_cast<std::uint32_t>(frozen), static_cast<std::uint32_t>(frozen >> 32U)};
}

Length::Range Length::range() const noexcept {
  Range range{kUnbounded, 0, std::min<std::uint32_t>(count_.load(), kSamples)};
  for (std::size_t i = 0; i < range.count; ++i) {
    const std::uint32_t sample = samples_[i].load(std::memory_order_relaxed);
    range.least = std::min(range.least, sample);
    range.most = std::max(range.most, sample);
  }
  return range;
}

bool Length::add_sample(std::uint32_t ns) noexcept {
  const std::uint32_t count = count_.load();
  samples_[count % kSamples].store(ns, std::memory_order_relaxed);
  // Stays in its second round, so that it never comes back to 0.
  count_.store(count + 1 == 2 * kSamples ? kSamples : count + 1);
  const Range all = range();
  const bool differ = all.most > 2 * std::max(all.least, kFloorNs);
  longest_.store(all.most, std::memory_order_relaxed);
  const std::uint32_t before =
      length_.exchange(differ ? kUnbounded : all.most, std::memory_order_relaxed);
  const bool begins = differ && count != 0 && before != kUnbounded;
  if (begins) differing_.store(true, std::memory_order_relaxed);
  return begins;
}

std::uint64_t Lengths::key_of(const Work& work) noexcept {
  std::uint64_t key = mix(reinterpret_cast<std::uintptr_t>(work.function),
                          reinterpret_cast<std::uintptr_t>(work.graph));
  for (std::size_t i = 0; i < work.grid.size(); ++i) {
    key = mix(key, (std::uint64_t{work.grid[i]} << 32U) | work.block[i]);
  }
  key = mix(key, work.shared_bytes);
  return key == 0 ? 1 : key;
}

Length* Lengths::find(const Work& work) noexcept {
  constexpr std::size_t kTries = 32;
  const std::uint64_t key = key_of(work);
  for (std::size_t i = 0; i < kTries; ++i) {
    Length& place = table_[(key + i) % kSize];
    std::uint64_t found = place.key_.load(std::memory_order_relaxed);
    if (found == 0 && place.key_.compare_exchange_strong(found, key)) {
      place.function_.store(work.function, std::memory_order_relaxed);
      return &place;
    }
    if (found == key) return &place;
  }
  return nullptr;
}

void Lengths::renew(CUgraphExec graph, bool preemptible) noexcept {
  Work work;
  work.graph = graph;
  Length* length = find(work);
  if (length == nullptr) return;
  length->length_.store(Length::kUnbounded);
  length->longest_.store(Length::kUnbounded);
  length->count_.store(0);
  length->tried_.store(0);
  length->preemptible_.store(preemptible);
}

}  // namespace sluice::intercept
