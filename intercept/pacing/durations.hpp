#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

class LaunchDuration;

/// What a launch gives the GPU: enough to tell apart launches of different durations.
struct Work {
  CUfunction function = nullptr;  ///< Null for a graph.
  CUgraphExec graph = nullptr;
  std::array<unsigned, 3> grid{};   ///< Blocks.
  std::array<unsigned, 3> block{};  ///< Threads.
  unsigned shared_bytes = 0;
  LaunchDuration* of_graph = nullptr;  ///< Of a graph: its duration (GraphBook), null if unknown.
};

/// See Process::code_epoch.
inline std::uint32_t code_epoch() noexcept {
  return g_process.code_epoch.load(std::memory_order_relaxed);
}

/// The learned GPU time of one kind of launch: the second longest of the last samples, because one
/// sample may be wrong, or the longest of a few.
///
/// A persistent kernel has one grid for problems of every size. So where samples differ by more
/// than a factor of 2, a few samples do not bound the next launch.
class LaunchDuration {
 public:
  /// The last 32 samples count, and up to 32 before them: enough to have seen the long launch of a
  /// kind of which one in seven is long (a batch normalisation in the training of ResNet-50).
  static constexpr std::size_t kSamples = 32;
  static constexpr std::size_t kFew = 8;
  /// Differences below this come from the measurement.
  static constexpr std::uint32_t kFloorNs = 20'000;
  /// At most this much of a sample is host time.
  static constexpr std::uint32_t kMostHostNs = 30'000;
  /// Longer than any spacing. Stands for a duration that is unknown, or that differs between too
  /// few samples.
  static constexpr std::uint32_t kUnbounded = 0xffff'ffff;

  /// ns. kUnbounded if there is no sample, if fewer than kSamples samples differ, or in doubt.
  [[nodiscard]] std::uint32_t ns() const noexcept {
    return in_doubt() ? kUnbounded : ns_.load(std::memory_order_relaxed);
  }
  /// Whether there is a sample that was taken while no other client ran a job.
  [[nodiscard]] bool known() const noexcept {
    return count_.load(std::memory_order_relaxed) != 0 && !in_doubt();
  }
  /// Whether ns() is an upper bound, from samples next to other jobs.
  [[nodiscard]] bool bounded() const noexcept {
    return bounded_.load(std::memory_order_relaxed) && !in_doubt();
  }
  /// Whether mean_ns() comes from bounds.
  [[nodiscard]] bool mean_is_bound() const noexcept {
    return bounded_.load(std::memory_order_relaxed);
  }
  /// Whether code was unloaded since the last sample: another kernel may have the address now. The
  /// next sample decides whether the ones before it count again.
  [[nodiscard]] bool in_doubt() const noexcept {
    return !is_same_code(epoch_.load(std::memory_order_relaxed));
  }
  /// Whether a launch of that epoch ran the code that has the address now. A graph keeps its code.
  [[nodiscard]] bool is_same_code(std::uint32_t epoch) const noexcept {
    return epoch == code_epoch() || graph_.load(std::memory_order_relaxed);
  }
  /// Whether ns() is known or bounded, or so many samples failed that none can be expected.
  [[nodiscard]] bool settled() const noexcept {
    return known() || bounded() || tried_.load(std::memory_order_relaxed) >= kTries;
  }
  /// Whether more samples are wanted: there are fewer than kSamples, they differ, or are in doubt.
  /// Always true for a graph: its launches are rare and long, and it may have been updated.
  [[nodiscard]] bool wants_samples() const noexcept {
    if (bounded() && tried_.load(std::memory_order_relaxed) >= kTries) return false;
    return in_doubt() || count_.load(std::memory_order_relaxed) < kSamples || differs() ||
           graph_.load(std::memory_order_relaxed);
  }
  /// Whether this is a graph with waits inside.
  [[nodiscard]] bool preemptible() const noexcept {
    return preemptible_.load(std::memory_order_relaxed);
  }
  /// ns. Like ns(), but not kUnbounded where few samples differ: the longest sample. kUnbounded if
  /// there is no sample, or in doubt.
  [[nodiscard]] std::uint32_t longest_ns() const noexcept {
    return in_doubt() ? kUnbounded : longest_.load(std::memory_order_relaxed);
  }

  /// ns. The mean of the samples, in which later samples count more, or of the least bounds of a
  /// few groups; 0: not known.
  [[nodiscard]] std::uint32_t mean_ns() const noexcept {
    return mean_.load(std::memory_order_relaxed);
  }
  /// Launches whose GPU time is not counted yet (gpu_time.hpp).
  void owe(std::uint32_t launches) noexcept {
    owed_.fetch_add(launches, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t take_owed() noexcept {
    return owed_.exchange(0, std::memory_order_relaxed);
  }

  /// Whether a drawn launch should be measured for the mean: one in about 16, or in 4 where
  /// durations differ. The turn comes by count. By time, it would mostly come to the launches that
  /// follow a long one, because a full queue holds the program until that one is done.
  [[nodiscard]] bool is_turn() noexcept {
    const std::uint32_t left = until_turn_.load(std::memory_order_relaxed);
    if (left != 0) {
      until_turn_.store(left - 1, std::memory_order_relaxed);
      return false;
    }
    const std::uint32_t random =
        random_.load(std::memory_order_relaxed) * 1'664'525U + 1'013'904'223U;
    random_.store(random, std::memory_order_relaxed);
    until_turn_.store(is_split() ? random >> 29U : random >> 27U, std::memory_order_relaxed);
    return true;
  }

  /// Bracket a sample.
  void begin_sample() noexcept {
    tried_.fetch_add(1, std::memory_order_relaxed);
    sampled_.fetch_add(1, std::memory_order_relaxed);
  }
  void end_sample() noexcept { sampled_.fetch_sub(1, std::memory_order_relaxed); }
  /// The end of a launch of this kind was seen.
  void note_end() noexcept { ends_.fetch_add(1, std::memory_order_relaxed); }
  /// It is none that runs for as long as its program.
  [[nodiscard]] bool surely_ends() const noexcept {
    constexpr std::uint32_t kOften = 3;
    return ends_.load(std::memory_order_relaxed) >= kOften;
  }
  /// Samples under way.
  [[nodiscard]] std::uint32_t sampled() const noexcept {
    return sampled_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_sampled() const noexcept { return sampled() != 0; }
  /// Adds a sample; for one thread. A sample that was not taken `behind_work` may contain host
  /// time, because the GPU was idle when the launch came. Such samples count until there is one
  /// behind work. From then on, such a sample does not count if it is longer than the known
  /// duration by kMostHostNs or less.
  /// `own_ns`: the sample without its host time, as far as that is known; 0: the same.
  void add_sample(std::uint32_t ns, bool behind_work = true, std::uint32_t own_ns = 0) noexcept;
  /// Adds a sample with much host time in front: for the mean only.
  void add_to_mean(std::uint32_t own_ns) noexcept;
  /// Adds a sample during which another client may have run: an upper bound. Bounds count until
  /// there is a sample. Of each kBoundGroup bounds the least counts, because a time slice of
  /// another client makes a bound too long by milliseconds.
  void add_bound(std::uint32_t ns) noexcept;
  /// Makes this the duration of an executable graph that nobody has measured. No sample may be
  /// under way.
  void begin_graph(bool preemptible) noexcept;
  /// Uses the duration of `kind` until there is a sample. Each sample of this launch also counts
  /// for `kind`.
  void assume(LaunchDuration& kind) noexcept;
  /// Whether the samples that count differ by more than a factor of 2.
  [[nodiscard]] bool differs() const noexcept { return differ_.load(std::memory_order_relaxed); }
  /// Whether they ever differed.
  [[nodiscard]] bool is_split() const noexcept { return split_.load(std::memory_order_relaxed); }

 private:
  friend class LaunchDurations;
  static constexpr std::uint32_t kTries = 64;
  static constexpr std::uint32_t kBoundGroup = 4;
  static constexpr std::uint32_t kSamplesOfMean = 64;
  /// The summary that is kept of kSamples samples.
  struct Extremes {
    std::uint32_t least = kUnbounded;
    std::uint32_t second = 0;
    std::uint32_t most = 0;
    void add(std::uint32_t ns) noexcept;
  };
  std::atomic<std::uint64_t> key_{0};
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> tried_{0};
  std::atomic<std::uint32_t> sampled_{0};
  std::atomic<std::uint32_t> ends_{0};
  std::atomic<std::uint32_t> until_turn_{0};  ///< Drawn launches until is_turn().
  std::atomic<std::uint32_t> random_{0};
  std::atomic<bool> graph_{false};
  std::atomic<bool> preemptible_{false};
  std::atomic<bool> differ_{false};
  std::atomic<bool> split_{false};
  std::atomic<bool> bounded_{false};     ///< ns() comes from bounds.
  std::atomic<std::uint32_t> epoch_{0};  ///< Of the last sample.
  std::atomic<LaunchDuration*> kind_{nullptr};
  std::atomic<std::uint32_t> ns_{kUnbounded};
  std::atomic<std::uint32_t> longest_{kUnbounded};
  std::atomic<std::uint32_t> mean_{0};
  std::atomic<std::uint64_t> owed_{0};
  std::uint32_t means_ = 0;  ///< Samples in the mean, up to kSamplesOfMean.
  bool behind_work_ =
      false;  ///< This and all members below belong to the thread that adds samples.
  Extremes now_;
  Extremes before_;  ///< Of the kSamples samples before those of now_.
  std::uint32_t bounds_ = 0;
  std::uint32_t least_bound_ = kUnbounded;  ///< Of the current group of bounds.
};

/// The durations of all kinds of kernel launches of one client. Lookups take no lock, and nothing
/// is forgotten. A program that launches ever new shapes fills the table; after that, all new
/// shapes of a function share one duration.
class LaunchDurations {
 public:
  /// Null if the table of functions is full too.
  [[nodiscard]] LaunchDuration* find(const Work& work) noexcept {
    return work.graph != nullptr ? work.of_graph : find_by(key_of(work), work, true);
  }
  /// Null too for a kind that was never launched by itself. Takes no place in the tables.
  [[nodiscard]] const LaunchDuration* look_up(const Work& kernel) noexcept {
    return find_by(key_of(kernel), kernel, false);
  }
  /// Like find(), but where the durations of a kind differ, its launches are also told apart by the
  /// launch in front of them in their stream, because programs repeat themselves. `previous` is 0
  /// at first and kept by the caller for each stream.
  [[nodiscard]] LaunchDuration* find_in_turn(const Work& work, std::uint64_t& previous) noexcept {
    if (work.graph != nullptr) {
      previous = kGraph;
      return work.of_graph;
    }
    const std::uint64_t key = key_of(work);
    const std::uint64_t behind = std::exchange(previous, key);
    LaunchDuration& first = table_[key & (kSize - 1)];
    const bool found = first.key_.load(std::memory_order_relaxed) == key;
    if (found && !first.is_split()) [[likely]]
      return &first;
    return find_slowly(work, key, behind);
  }

  /// A key for all launches of kernels that share one duration. Never 0.
  [[nodiscard]] static std::uint64_t key_of(const Work& work) noexcept {
    const auto size = [&work](std::size_t i) {
      return (std::uint64_t{work.grid[i]} << 32U) | work.block[i];
    };
    const std::uint64_t what = mix(reinterpret_cast<std::uintptr_t>(work.function), size(0));
    const std::uint64_t sizes = mix(size(1), size(2));
    const std::uint64_t key = mix(what ^ sizes, work.shared_bytes);
    return key == 0 ? 1 : key;
  }

 private:
  /// Unlike in a chain of multiplications, several mixes of one key run at the same time. The
  /// constants are digits of pi: a factor of 0 would lose the other word.
  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t one,
                                                   std::uint64_t other) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{one ^ 0x243f'6a88'85a3'08d3} * (other ^ 0x1319'8a2e'0370'7344);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
  // Powers of two, so that a place is found without a division.
  static constexpr std::size_t kSize = 8192;
  static constexpr std::size_t kFunctions = 1024;
  /// Stands for every graph in front of a kernel: handles of graphs would fill the table.
  static constexpr std::uint64_t kGraph = 1;
  [[nodiscard]] LaunchDuration* find_slowly(const Work& work, std::uint64_t key,
                                            std::uint64_t behind) noexcept;
  /// `add`: a kind that is not in the table gets a place, if there is one.
  [[nodiscard]] LaunchDuration* find_by(std::uint64_t key, const Work& work, bool add) noexcept;
  [[nodiscard]] static LaunchDuration* find_in(std::vector<LaunchDuration>& table,
                                               std::uint64_t key, bool add) noexcept;
  std::vector<LaunchDuration> table_ = std::vector<LaunchDuration>(kSize);
  std::vector<LaunchDuration> any_shape_ = std::vector<LaunchDuration>(kFunctions);
};

}  // namespace sluice::intercept
