#pragma once
#include <cstdint>

#include "shm/board.hpp"

/// Which time slice a client should have: the rule, pure, on the words of the board
/// (docs/reference/slices.md).
namespace sluice::intercept {

/// How much of a job the GPU is busy with it, by two signs. Its GPU time as a part of the greater
/// of that and of the host's time without waits: what runs below makes durations longer, and
/// neither of the two. And its waits as a part of its duration: the GPU time of tiny kernels is
/// measured too long. A program whose host is slow launches into an idle GPU again and again within
/// a job.
class GpuShare {
 public:
  /// `gpu_ns`, the number of jobs, their waits and the rest of their time only grow. A program that
  /// never waits asks again and again, so its waits say nothing. Returns 1/1000; 0 while unknown.
  std::uint32_t tick(std::uint64_t gpu_ns, std::uint64_t jobs, std::uint64_t host_ns,
                     std::uint64_t waited_ns) noexcept;

 private:
  bool first_ = true;
  std::uint64_t gpu_ns_ = 0;
  std::uint64_t jobs_ = 0;
  std::uint64_t host_ns_ = 0;
  std::uint64_t waited_ns_ = 0;
  std::uint32_t share_ = 0;
};

class SliceRule {
 public:
  /// Short enough that a critical job waits for little, and long against a switch of 0.12 ms.
  static constexpr std::uint32_t kShortUs = 100;
  /// When a window opens, a program that is never idle has the GPU until its slice ends. Until the
  /// window opens nobody else has work, so a short slice of it costs nothing. Those below run in
  /// the window, and their gate ends it; only a longer kernel is stopped by their slice.
  static constexpr std::uint32_t kBetweenWindowsUs = 200;
  static constexpr std::uint32_t kInWindowUs = 1'000;
  static constexpr std::uint32_t kMostUs = 100'000;
  /// A client that has not used the GPU for this long is not busy.
  static constexpr std::uint64_t kBusyNs = 1'000'000'000;
  /// A client above that has had no job for this long is idle: it changes nobody's slice.
  static constexpr std::uint64_t kPauseNs = 10'000'000'000;
  /// What makes slices short must have been true for this long: a change costs 0.3 ms.
  static constexpr std::uint64_t kSettledNs = 500'000'000;
  /// From this share on, a client's jobs keep the GPU busy.
  static constexpr std::uint32_t kBusyShare = 650;
  static constexpr std::uint32_t kIdleShare = 500;

  struct Slice {
    std::uint32_t us = 0;  ///< 0: the driver's.
    shm::SliceState state = shm::SliceState::kUnknown;

    friend bool operator==(const Slice&, const Slice&) = default;
  };

  /// `time_scale`: how many times slower than real time the device runs.
  explicit SliceRule(double time_scale = 1) noexcept : time_scale_(time_scale) {}

  /// For the client in `slot`, every 20 ms.
  Slice tick(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept;

 private:
  /// What the other clients of the device do. A context alone is nothing, whoever has it.
  struct Others {
    /// The highest priority above: of those that use the GPU, or if nobody does, of those that have
    /// had a job lately. The client's own if there is none.
    std::uint8_t highest = 0;
    std::uint8_t highest_living = 0;  ///< The same of all, also of idle ones.
    bool users_above = false;         ///< One above uses the GPU.
    bool below = false;               ///< One below uses the GPU.
    bool equal = false;
    bool windows = false;  ///< One above opens the gates for windows.
    bool pays = false;     ///< Somebody whom this client does not hold would wait for a long slice.
  };
  [[nodiscard]] static Others look(const shm::Board& board, int slot,
                                   std::uint64_t now_ns) noexcept;
  [[nodiscard]] Slice wanted(const shm::Board& board, int slot, std::uint64_t now_ns) noexcept;
  [[nodiscard]] Slice below_others(const shm::Board& board, int slot, const Others& others,
                                   std::uint64_t now_ns) noexcept;
  [[nodiscard]] Slice above_others(const shm::Board& board, int slot,
                                   const Others& others) const noexcept;
  [[nodiscard]] shm::SliceState about_those_above(const shm::Board& board, int slot,
                                                  const Others& others,
                                                  std::uint64_t now_ns) const noexcept;

  double time_scale_;
  Slice now_;
  Slice next_;  ///< What is wanted, and since when.
  std::uint64_t next_since_ns_ = 0;
};

/// Whether the client has used the GPU within SliceRule::kBusyNs, and not only launched a little.
[[nodiscard]] bool is_busy(const shm::Slot& slot, std::uint64_t now_ns) noexcept;

/// Whether the client has had a job within `within_ns`, however little of the GPU the job used. Not
/// for clients of priority 0: the ends of their jobs are not always known.
[[nodiscard]] bool was_there(const shm::Slot& slot, std::uint64_t now_ns,
                             std::uint64_t within_ns) noexcept;

}  // namespace sluice::intercept
