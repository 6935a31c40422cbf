#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::intercept {

/// Learns when the jobs of a client begin, and says when the next one is expected, while they come
/// regularly and it pays to know: whoever acts on it tells what became of it. Asks no clock; all
/// times are CLOCK_MONOTONIC ns, in the order in which they are given. Not for several threads.
class Prediction {
 public:
  struct Expected {
    std::uint64_t start_ns;  ///< One in ten came earlier.
    std::uint64_t lapse_ns;  ///< What has not come by then will not.
  };
  struct Tally {
    std::uint64_t made = 0;     ///< Predictions that were acted on and are decided.
    std::uint64_t hits = 0;     ///< The job began after the gates were closed, before the lapse.
    std::uint64_t paid_ns = 0;  ///< Gates were closed and no job ran.
  };

  static constexpr std::size_t kKept = 16;    ///< Intervals and outcomes looked back on.
  static constexpr std::size_t kEnough = 12;  ///< Of them must be regular, or hits.
  static constexpr std::uint64_t kLongestNs = 2'000'000'000;
  /// How far a regular interval lies from the median: so far, or a fiftieth of it.
  static constexpr std::uint64_t kToleranceNs = 300'000;
  /// After the latest time that is usual.
  static constexpr std::uint64_t kGraceNs = 1'000'000;
  /// Work that follows so soon after a job is the rest of it: a program that does not say where its
  /// jobs are may synchronise in the middle of one. No interval is shorter than this.
  static constexpr std::uint64_t kSameJobNs = 1'000'000;
  /// One job in between may be skipped. Then nothing is expected until one comes.
  static constexpr std::uint64_t kMostAhead = 2;
  /// Gates may be closed for nothing for one part in ten of the time.
  static constexpr std::uint64_t kPaidPart = 10;
  /// Jobs without a prediction after it did not pay; doubled each time.
  static constexpr std::uint32_t kFirstPause = 16;
  static constexpr std::uint32_t kLongestPause = 1024;

  void began(std::uint64_t now_ns) noexcept;
  void ended(std::uint64_t now_ns) noexcept { last_end_ns_ = now_ns; }

  [[nodiscard]] const std::optional<Expected>& expected() const noexcept { return expected_; }
  /// Whether gates that close `lead_ns` before the expected start are closed for a small enough
  /// part of the time, where all goes well.
  [[nodiscard]] bool affordable(std::uint64_t lead_ns) const noexcept;

  /// What is expected will be acted on: a job before the gates close is a miss.
  void watch() noexcept {
    if (state_ == State::kIgnored) state_ = State::kWatched;
  }
  /// The gates should be closed now, and a job keeps them closed already: neither hit nor miss.
  void excuse() noexcept {
    if (state_ == State::kWatched) state_ = State::kExcused;
  }
  void closed(std::uint64_t now_ns) noexcept;
  /// Its time is over, gates closed or not; the one after it may be expected now.
  void lapsed(std::uint64_t now_ns) noexcept;
  /// Nobody acts on it any more. Gates are open.
  void dropped(std::uint64_t now_ns) noexcept;

  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

 private:
  enum class State { kIgnored, kWatched, kExcused, kClosed };
  struct Rhythm {
    std::uint64_t period_ns;
    std::int64_t early_ns;  ///< Of ten jobs one comes earlier than this after its time,
    std::int64_t late_ns;   ///< and one later than this.
  };
  struct Outcome {
    bool hit = true;
    std::uint64_t paid_ns = 0;
  };

  [[nodiscard]] std::optional<Rhythm> find_rhythm() const noexcept;
  void expect_next() noexcept;
  void decide(Outcome outcome) noexcept;
  [[nodiscard]] bool earns_its_keep() const noexcept;

  std::uint64_t last_begin_ns_ = 0;
  std::uint64_t last_end_ns_ = 0;
  std::array<std::uint64_t, kKept> intervals_{};
  std::size_t begins_ = 0;
  std::optional<Rhythm> rhythm_;

  State state_ = State::kIgnored;
  std::optional<Expected> expected_;
  std::uint64_t ahead_ = 0;  ///< Periods from the last begin to what is expected.
  std::uint64_t closed_ns_ = 0;

  std::array<Outcome, kKept> outcomes_{};  ///< Since the last pause; those to come count as hits.
  std::size_t decided_ = 0;
  std::uint32_t pause_ = 0;  ///< Jobs until the next prediction.
  std::uint32_t next_pause_ = kFirstPause;
  Tally tally_;
};

}  // namespace sluice::intercept
