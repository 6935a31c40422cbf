#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/last_durations.hpp"

namespace sluice::shm {

/// The durations of one client's jobs. For status output only: no rule of the board depends on
/// them. The client's process writes, one job at a time, and any process may read at any time.
struct JobTimes {
  using Word = std::atomic<std::uint64_t>;
  using Recent = LastDurations::Recent;

  static constexpr std::size_t kKept = LastDurations::kKept;
  /// Upper bounds of the histogram's buckets in ns. One more bucket has all longer jobs.
  static constexpr std::array<std::uint64_t, 16> kBoundsNs{
      100'000,       250'000,       500'000,       1'000'000,     2'500'000,   5'000'000,
      10'000'000,    25'000'000,    50'000'000,    100'000'000,   250'000'000, 500'000'000,
      1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};

  Word ended;     ///< Jobs that have ended since the client attached.
  Word total_ns;  ///< Sum of their durations.
  std::array<Word, kBoundsNs.size() + 1>
      buckets;  ///< Number of jobs by duration; each job is in one bucket.
  LastDurations last;

  /// Adds a job. Only for the client's process, one call at a time.
  void add(std::uint64_t ns) noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const auto* const bound = std::lower_bound(kBoundsNs.begin(), kBoundsNs.end(), ns);
    Word& bucket = buckets[static_cast<std::size_t>(bound - kBoundsNs.begin())];
    bucket.store(bucket.load(kRelaxed) + 1, kRelaxed);
    total_ns.store(total_ns.load(kRelaxed) + ns, kRelaxed);
    last.add(ended, ns);
  }

  /// For the controller, while no process has the slot.
  void clear() noexcept {
    ended.store(0);
    total_ns.store(0);
    for (Word& bucket : buckets) bucket.store(0);
    last.clear();
  }

  [[nodiscard]] Recent recent() const { return last.recent(ended); }
};

}  // namespace sluice::shm
