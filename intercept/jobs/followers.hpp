#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::intercept {

/// Tells after a job whether the next one will come at once, and of which kind it will be: a
/// request that waits for the GPU in its middle is several jobs. Of a program that has its jobs
/// back to back nothing is told: best effort has its gaps. So it keeps at least half of the time
/// between jobs. Reads no clock, allocates nothing. Not thread-safe.
class Followers {
 public:
  static constexpr std::uint64_t kSoonNs = 500'000;  ///< Of GPU time.
  /// Of GPU time: so long may the gates stay closed for pauses that have been.
  static constexpr std::uint64_t kMostLeftNs = 20'000'000;
  static constexpr std::size_t kKinds = 64;
  /// A kind is followed at once more often than not by so many.
  static constexpr int kSure = 4;
  static constexpr int kMostSure = 8;

  /// `time_scale`: real time divided by GPU time.
  explicit Followers(double time_scale = 1) noexcept
      : soon_ns_(static_cast<std::uint64_t>(double(kSoonNs) * time_scale)),
        most_left_ns_(static_cast<std::uint64_t>(double(kMostLeftNs) * time_scale)) {}

  /// A job begins. `kind`: jobs that begin with the same work are alike.
  void began(std::uint64_t kind, std::uint64_t now_ns) noexcept;
  void ended(std::uint64_t now_ns) noexcept { ended_ns_ = now_ns; }
  /// The job ended in another way than by a wait, maybe too early: what begins next is unknown.
  void goes_on() noexcept { goes_on_ = true; }
  /// Whether the gates stay closed, for soon_ns() at most, behind the job that has ended: another
  /// one will begin within that, and `may_for(kind)`, which names it.
  template <class MayFor>
  [[nodiscard]] bool stay_closed(MayFor may_for) noexcept {
    const std::optional<std::uint64_t> kind = next();
    held_ = kind && may_for(*kind);
    return held_;
  }
  [[nodiscard]] std::uint64_t soon_ns() const noexcept { return soon_ns_; }

 private:
  struct Entry {
    std::uint64_t kind = 0;
    std::uint64_t next = 0;  ///< The kind of the last one that followed at once.
    std::uint64_t used = 0;
    int sure = 0;
  };
  [[nodiscard]] std::optional<std::uint64_t> next() const noexcept;
  void count_gap(std::uint64_t gap_ns, bool soon) noexcept;

  std::uint64_t soon_ns_;
  std::uint64_t most_left_ns_;
  std::array<Entry, kKinds> entries_{};
  std::uint64_t uses_ = 0;
  std::size_t last_ = 0;        ///< The entry of the last job.
  std::uint64_t ended_ns_ = 0;  ///< Of the last job; 0: none has ended.
  /// Open gates in pauses that were not short, without as much time with closed gates.
  std::uint64_t left_ns_ = 0;
  bool held_ = false;
  bool goes_on_ = false;
};

}  // namespace sluice::intercept
