#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::shm {

/// The last durations of something that ends again and again, such as the jobs of a client. One
/// thread at a time writes, and any process may read at any time. Part of the board's layout.
struct LastDurations {
  using Word = std::atomic<std::uint64_t>;

  static constexpr std::size_t kKept = 64;  ///< Number of durations that are kept.

  /// The i-th duration is at [i % size]. The place that is being written belongs to a duration that
  /// is older than the kKept durations a reader takes.
  std::array<Word, kKept + 1> ns;

  /// Adds a duration, and counts it in `ended`.
  void add(Word& ended, std::uint64_t took_ns) noexcept {
    const std::uint64_t index = ended.load(std::memory_order_relaxed);
    ns[index % ns.size()].store(took_ns, std::memory_order_relaxed);
    ended.store(index + 1, std::memory_order_release);
  }
  void clear() noexcept {
    for (Word& word : ns) word.store(0);
  }

  struct Recent {
    std::uint64_t ended = 0;        ///< How many have ended: the number of the last one in `ns`.
    std::vector<std::uint64_t> ns;  ///< The last durations, at most kKept, oldest first.
  };
  [[nodiscard]] Recent recent(const Word& ended) const {
    Recent found;
    found.ended = ended.load(std::memory_order_acquire);
    const std::uint64_t first = found.ended - std::min<std::uint64_t>(found.ended, kKept);
    for (std::uint64_t i = first; i < found.ended; ++i) {
      found.ns.push_back(ns[i % ns.size()].load(std::memory_order_relaxed));
    }
    // What ended during the copy may have replaced the oldest durations.
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
