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

std::uint32_t Length::frozen_ns() noexcept {
  std::uint64_t before = 0;
  const std::uint64_t wanted = std::uint64_t{ns()} + 1;
  return static_cast<std::uint32_t>(
      (frozen_.compare_exchange_strong(before, wanted) ? wanted : before) - 1);
}

void Length::add_sample(std::uint32_t ns) noexcept {
  const std::uint32_t count = count_.load();
  samples_[count % kSamples].store(ns, std::memory_order_relaxed);
  std::uint32_t least = ns;
  std::uint32_t most = ns;
  for (std::size_t i = 0; i < std::min<std::size_t>(count, kSamples); ++i) {
    const std::uint32_t sample = samples_[i].load(std::memory_order_relaxed);
    if (i == count % kSamples) continue;  // the one that was replaced
    least = std::min(least, sample);
    most = std::max(most, sample);
  }
  const bool differs = most > 2 * std::max(least, kFloorNs);
  length_.store(differs ? kUnbounded : most, std::memory_order_relaxed);
  // Stays in its second round, so that it never comes back to 0.
  count_.store(count + 1 == 2 * kSamples ? kSamples : count + 1);
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
    if (found == key ||
        (found == 0 && (place.key_.compare_exchange_strong(found, key) || found == key))) {
      return &place;
    }
  }
  return nullptr;
}

void Lengths::renew(CUgraphExec graph, bool preemptible) noexcept {
  Work work;
  work.graph = graph;
  Length* length = find(work);
  if (length == nullptr) return;
  length->length_.store(Length::kUnbounded);
  length->count_.store(0);
  length->tried_.store(0);
  length->preemptible_.store(preemptible);
}

}  // namespace sluice::intercept
