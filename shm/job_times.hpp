#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::shm {

/// The durations of one client's jobs. For status output only: no rule of the board depends on
/// them. The client's process writes, one job at a time, and any process may read at any time.
struct JobTimes {
  using Word = std::atomic<std::uint64_t>;

  static constexpr std::size_t kKept = 64;  ///< Number of durations that are kept.
  /// Upper bounds of the histogram's buckets in ns. One more bucket has all longer jobs.
  static constexpr std::array<std::uint64_t, 16> kBoundsNs{
      100'000,       250'000,       500'000,       1'000'000,     2'500'000,   5'000'000,
      10'000'000,    25'000'000,    50'000'000,    100'000'000,   250'000'000, 500'000'000,
      1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};

  Word ended;     ///< Jobs that have ended since the client attached.
  Word total_ns;  ///< Sum of their durations.
  std::array<Word, kBoundsNs.size() + 1>
      buckets;  ///< Number of jobs by duration; each job is in one bucket.
  /// The duration of job i is at [i % size]. The place that is being written belongs to a job that
  /// is older than the kKept jobs a reader takes.
  std::array<Word, kKept + 1> last_ns;

  /// Adds a job. Only for the client's process, one call at a time.
  void add(std::uint64_t ns) noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const std::uint64_t job = ended.load(kRelaxed);
    const auto* const bound = std::lower_bound(kBoundsNs.begin(), kBoundsNs.end(), ns);
    Word& bucket = buckets[static_cast<std::size_t>(bound - kBoundsNs.begin())];
    last_ns[job % last_ns.size()].store(ns, kRelaxed);
    bucket.store(bucket.load(kRelaxed) + 1, kRelaxed);
    total_ns.store(total_ns.load(kRelaxed) + ns, kRelaxed);
    ended.store(job + 1, std::memory_order_release);
  }

  /// For the controller, while no process has the slot.
  void clear() noexcept {
    ended.store(0);
    total_ns.store(0);
    for (Word& bucket : buckets) bucket.store(0);
    for (Word& ns : last_ns) ns.store(0);
  }

  struct Recent {
    std::uint64_t ended =
        0;  ///< Number of ended jobs, which is the number of the last job in `ns`.
    std::vector<std::uint64_t> ns;  ///< The last durations, at most kKept, oldest first.
  };
  [[nodiscard]] Recent recent() const {
    Recent found;
    found.ended = ended.load(std::memory_order_acquire);
    const std::uint64_t first = found.ended - std::min<std::uint64_t>(found.ended, kKept);
    for (std::uint64_t job = first; job < found.ended; ++job) {
      found.ns.push_back(last_ns[job % last_ns.size()].load(std::memory_order_relaxed));
    }
    // Jobs that ended during the copy may have replaced the oldest durations.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t now = ended.load(std::memory_order_relaxed);
    const std::uint64_t replaced = now > first + kKept ? now - first - kKept : 0;
    found.ns.erase(found.ns.begin(),
                   found.ns.begin() + static_cast<std::ptrdiff_t>(
                                          std::min<std::uint64_t>(replaced, found.ns.size())));
    return found;
  }
};

}  // namespace sluice::shm
