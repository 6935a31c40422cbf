#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "intercept/driver.hpp"

namespace sluice::intercept {

/// What a launch gives the GPU: enough to tell two launches apart that take different times.
struct Work {
  CUfunction function = nullptr;  ///< Null for a graph.
  CUgraphExec graph = nullptr;
  std::array<unsigned, 3> grid{};   ///< Blocks.
  std::array<unsigned, 3> block{};  ///< Threads.
  unsigned shared_bytes = 0;
  bool programmatic = false;  ///< May start before the launch in front of it has ended.
};

/// GPU time of one kind of launch, as far as it is known: the greatest of its last samples. A
/// persistent kernel has one grid for problems of every size, so samples that differ by more than
/// 2 x say nothing about the next launch.
class Length {
 public:
  static constexpr std::size_t kSamples = 8;
  /// Below this, differences are those of the measurement.
  static constexpr std::uint32_t kFloorNs = 20'000;
  /// Longer than any spacing: of launches whose time is not known, or differs.
  static constexpr std::uint32_t kUnbounded = 0xffff'ffff;

  /// ns; kUnbounded if not known or not the same each time.
  [[nodiscard]] std::uint32_t ns() const noexcept {
    return length_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool known() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// Whether there is a sample, or no hope of one (another client always runs, say).
  [[nodiscard]] bool settled() const noexcept {
    return known() || tried_.load(std::memory_order_relaxed) >= kTries;
  }
  /// Whether there are fewer samples than there is room for, or one of them may have been wrong.
  [[nodiscard]] bool wants_samples() const noexcept {
    return count_.load(std::memory_order_relaxed) < kSamples || ns() == kUnbounded;
  }
  /// A graph with waits inside.
  [[nodiscard]] bool preemptible() const noexcept {
    return preemptible_.load(std::memory_order_relaxed);
  }
  /// The greatest of the last samples, also where they differ; kUnbounded if there is none.
  [[nodiscard]] std::uint32_t longest_ns() const noexcept {
    return longest_.load(std::memory_order_relaxed);
  }
  struct Frozen {
    std::uint32_t ns;
    std::uint32_t longest_ns;
  };
  /// What ns() and longest_ns() were when this was first asked. Two captures of the same code must
  /// get the same nodes, so what they are decided by must not change.
  [[nodiscard]] Frozen frozen() noexcept;

  /// Around a sample: one at a time is enough of a kind.
  void begin_sample() noexcept {
    tried_.fetch_add(1, std::memory_order_relaxed);
    sampled_.store(true, std::memory_order_relaxed);
  }
  void end_sample() noexcept { sampled_.store(false, std::memory_order_relaxed); }
  [[nodiscard]] bool is_sampled() const noexcept {
    return sampled_.load(std::memory_order_relaxed);
  }
  /// Returns whether the samples have just begun to differ.
  bool add_sample(std::uint32_t ns) noexcept;
  /// Once after each time that they began to differ.
  [[nodiscard]] bool take_differing() noexcept {
    return differing_.load(std::memory_order_relaxed) && differing_.exchange(false);
  }
  /// The least and the greatest of the last samples, and their number.
  struct Range {
    std::uint32_t least;
    std::uint32_t most;
    std::uint32_t count;
  };
  [[nodiscard]] Range range() const noexcept;
  [[nodiscard]] CUfunction function() const noexcept {
    return function_.load(std::memory_order_relaxed);
  }

 private:
  friend class Lengths;
  static constexpr std::uint32_t kTries = 64;
  std::atomic<std::uint64_t> key_{0};
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> tried_{0};
  std::atomic<bool> sampled_{false};
  std::atomic<bool> preemptible_{false};
  std::atomic<bool> differing_{false};  ///< And that is not said yet.
  std::atomic<std::uint32_t> length_{kUnbounded};
  std::atomic<std::uint32_t> longest_{kUnbounded};
  std::atomic<std::uint64_t> frozen_{0};  ///< 0: not asked for yet; else longest_ and length_.
  std::atomic<CUfunction> function_{nullptr};
  std::array<std::atomic<std::uint32_t>, kSamples> samples_{};
};

/// The lengths of what one client launches. Found without a lock, never forgotten.
class Lengths {
 public:
  /// Null if there are too many different ones.
  [[nodiscard]] Length* find(const Work& work) noexcept;
  /// The handle stands for another graph from now on. `preemptible`: it has waits inside.
  void renew(CUgraphExec graph, bool preemptible) noexcept;

 private:
  static constexpr std::size_t kSize = 8192;
  [[nodiscard]] static std::uint64_t key_of(const Work& work) noexcept;
  std::vector<Length> table_ = std::vector<Length>(kSize);
};

}  // namespace sluice::intercept
