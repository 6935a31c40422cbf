#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::intercept {

/// Tells after a job whether the next one will come at once, and of which kind it will be: a
/// request that waits for the GPU in its middle is several jobs. Jobs that come at once are a
/// chain; a program whose chains are long has requests back to back, and nothing is told of it.
/// Reads no clock, allocates nothing. Not thread-safe.
class Followers {
 public:
  static constexpr std::uint64_t kSoonNs = 500'000;  ///< Of GPU time.
  static constexpr std::uint64_t kLongestChainNs = 100'000'000;
  static constexpr std::size_t kKinds = 64;
  /// A kind is followed at once more often than not by so many.
  static constexpr int kSure = 4;
  static constexpr int kMostSure = 8;

  /// `time_scale`: real time divided by GPU time.
  explicit Followers(double time_scale = 1) noexcept
      : soon_ns_(static_cast<std::uint64_t>(double(kSoonNs) * time_scale)),
        longest_ns_(static_cast<std::uint64_t>(double(kLongestChainNs) * time_scale)) {}

  /// A job begins. `kind`: jobs that begin with the same work are alike.
  void began(std::uint64_t kind, std::uint64_t now_ns) noexcept;
  void ended(std::uint64_t now_ns) noexcept { ended_ns_ = now_ns; }
  /// The job ended in another way than by a wait, maybe too early: what begins next is unknown.
  void goes_on() noexcept { goes_on_ = true; }
  /// The kind of the job that will begin within soon_ns() of the end of the last one; nothing: none
  /// will, or it is not known.
  [[nodiscard]] std::optional<std::uint64_t> next(std::uint64_t now_ns) const noexcept;
  [[nodiscard]] std::uint64_t soon_ns() const noexcept { return soon_ns_; }

 private:
  struct Entry {
    std::uint64_t kind = 0;
    std::uint64_t next = 0;  ///< The kind of the last one that followed at once.
    std::uint64_t used = 0;
    int sure = 0;
  };
  Entry& find_or_replace(std::uint64_t kind) noexcept;

  std::uint64_t soon_ns_;
  std::uint64_t longest_ns_;
  std::array<Entry, kKinds> entries_{};
  std::uint64_t uses_ = 0;
  std::size_t last_ = 0;        ///< The entry of the last job.
  std::uint64_t ended_ns_ = 0;  ///< Of the last job; 0: none has ended.
  std::uint64_t chain_ns_ = 0;  ///< When this chain began.
  bool goes_on_ = false;
  bool was_long_ = true;  ///< The chain before this one; true: there was none.
};

}  // namespace sluice::intercept
