#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// What a launch gives the GPU: enough to tell two launches apart that take different times.
struct Work {
  CUfunction function = nullptr;  ///< Null for a graph.
  CUgraphExec graph = nullptr;
  std::array<unsigned, 3> grid{};   ///< Blocks.
  std::array<unsigned, 3> block{};  ///< Threads.
  unsigned shared_bytes = 0;
};

/// GPU time of one kind of launch, as far as it is known: the second greatest of its last samples
/// (one may be wrong), or the greatest of a few. A persistent kernel has one grid for problems of
/// every size: where samples differ by more than 2 x, a few say nothing about the next launch.
class LaunchDuration {
 public:
  /// The last so many count, and up to as many before them. A kind that is long one time in seven
  /// (a batch normalisation of ResNet-50, in training) is to have been seen long.
  static constexpr std::size_t kSamples = 32;
  static constexpr std::size_t kFew = 8;
  /// Below this, differences are those of the measurement.
  static constexpr std::uint32_t kFloorNs = 20'000;
  /// As much of a sample may be the host's time.
  static constexpr std::uint32_t kMostHostNs = 30'000;
  /// Longer than any spacing: of launches whose time is not known, or differs in too few samples.
  static constexpr std::uint32_t kUnbounded = 0xffff'ffff;

  /// ns; kUnbounded if not known, or not the same each time as far as is known.
  [[nodiscard]] std::uint32_t ns() const noexcept {
    return length_.load(std::memory_order_relaxed);
  }
  /// Whether there is a sample of this kind that was taken while no other client ran.
  [[nodiscard]] bool known() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// Whether ns() says something, or there is no hope of a sample.
  [[nodiscard]] bool settled() const noexcept {
    return known() || bounded_.load(std::memory_order_relaxed) ||
           tried_.load(std::memory_order_relaxed) >= kTries;
  }
  /// Whether there are fewer samples than shall count, or they differ: some may have been wrong. Or
  /// it is a graph: its launches are rare and long, and it may have been updated.
  [[nodiscard]] bool wants_samples() const noexcept {
    return doubtful_.load(std::memory_order_relaxed) ||
           count_.load(std::memory_order_relaxed) < kSamples || differs() ||
           graph_.load(std::memory_order_relaxed);
  }
  /// A graph with waits inside.
  [[nodiscard]] bool preemptible() const noexcept {
    return preemptible_.load(std::memory_order_relaxed);
  }
  /// The same also where few samples differ; kUnbounded if there is none.
  [[nodiscard]] std::uint32_t longest_ns() const noexcept {
    return longest_.load(std::memory_order_relaxed);
  }

  /// Around a sample: one at a time is enough of a kind.
  void begin_sample() noexcept {
    tried_.fetch_add(1, std::memory_order_relaxed);
    sampled_.store(true, std::memory_order_relaxed);
  }
  void end_sample() noexcept { sampled_.store(false, std::memory_order_relaxed); }
  [[nodiscard]] bool is_sampled() const noexcept {
    return sampled_.load(std::memory_order_relaxed);
  }
  /// For one thread. A sample that was not taken `behind_work` may hold some of the host's time:
  /// the GPU had nothing to do when the launch came. Such ones count until there is one that was;
  /// from then on not those that are longer by no more than that.
  void add_sample(std::uint32_t ns, bool behind_work = true) noexcept;
  /// The same for a sample during which another client may have run: it is too long, if anything,
  /// so it is an upper bound. Bounds count until there is a sample. Of each kBoundGroup of them the
  /// least counts, because a time slice of another client makes one too long by milliseconds.
  void add_bound(std::uint32_t ns) noexcept;
  /// Code was unloaded: what was learned may be that of a kernel that is gone, whose address
  /// another one has now. The next sample decides.
  void doubt() noexcept { doubtful_.store(true, std::memory_order_relaxed); }
  /// The lengths of this one's kind, as long as there is no sample; each is one of the kind, too.
  void assume(LaunchDuration& kind) noexcept;
  /// Whether the samples that count differ by more than 2 x.
  [[nodiscard]] bool differs() const noexcept { return differ_.load(std::memory_order_relaxed); }
  /// Whether they ever did.
  [[nodiscard]] bool is_split() const noexcept { return split_.load(std::memory_order_relaxed); }

 private:
  friend class LaunchDurations;
  static constexpr std::uint32_t kTries = 64;
  static constexpr std::uint32_t kBoundGroup = 4;
  /// What is kept of kSamples samples.
  struct Extremes {
    std::uint32_t least = kUnbounded;
    std::uint32_t second = 0;
    std::uint32_t most = 0;
    void add(std::uint32_t ns) noexcept;
  };
  std::atomic<std::uint64_t> key_{0};
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> tried_{0};
  std::atomic<bool> sampled_{false};
  std::atomic<bool> graph_{false};
  std::atomic<bool> preemptible_{false};
  std::atomic<bool> differ_{false};
  std::atomic<bool> split_{false};
  std::atomic<bool> bounded_{false};  ///< ns() is that of bounds.
  std::atomic<bool> doubtful_{false};
  std::atomic<LaunchDuration*> kind_{nullptr};
  std::atomic<std::uint32_t> length_{kUnbounded};
  std::atomic<std::uint32_t> longest_{kUnbounded};
  bool behind_work_ = false;  ///< Of the thread that adds samples, as are:
  Extremes now_;
  Extremes before_;  ///< of the kSamples before those.
  std::uint32_t bounds_ = 0;
  std::uint32_t least_bound_ = kUnbounded;  ///< Of the group of bounds that is under way.
};

/// The lengths of what one client launches. Found without a lock, never forgotten. A program that
/// launches ever new shapes fills the table; from then on a new shape of a function shares one
/// length with all others that came too late.
class LaunchDurations {
 public:
  /// Null if there are too many functions, too.
  [[nodiscard]] LaunchDuration* find(const Work& work) noexcept {
    return find_by(key_of(work), work);
  }
  /// The same, but where kernels of this kind have differed, each is known by the launch in front
  /// of it in its stream, too: programs repeat themselves. `previous`: 0 at first, and kept by the
  /// caller.
  [[nodiscard]] LaunchDuration* find_in_turn(const Work& work, std::uint64_t& previous) noexcept;
  /// The handle stands for another graph from now on. `preemptible`: it has waits inside.
  void renew(CUgraphExec graph, bool preemptible) noexcept;
  /// The program unloaded code.
  void doubt_all() noexcept;

  /// Of launches that are known by one duration. Never 0.
  [[nodiscard]] static std::uint64_t key_of(const Work& work) noexcept;

 private:
  static constexpr std::size_t kSize = 8192;
  static constexpr std::size_t kFunctions = 1024;
  [[nodiscard]] LaunchDuration* find_by(std::uint64_t key, const Work& work) noexcept;
  [[nodiscard]] static LaunchDuration* find_in(std::vector<LaunchDuration>& table,
                                               std::uint64_t key) noexcept;
  std::vector<LaunchDuration> table_ = std::vector<LaunchDuration>(kSize);
  std::vector<LaunchDuration> any_shape_ = std::vector<LaunchDuration>(kFunctions);
};

}  // namespace sluice::intercept
