#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::intercept {

/// Learns when the jobs of a client begin. Predicts the next one while jobs come regularly and
/// predictions pay; the user of a prediction reports its outcome. Reads no clock: all times are
/// CLOCK_MONOTONIC ns, and are given in order. Not thread-safe.
class Prediction {
 public:
  struct Expected {
    std::uint64_t start_ns;  ///< One job in ten came earlier.
    std::uint64_t lapse_ns;  ///< A job that has not come by then is not expected any more.
  };
  struct Tally {
    std::uint64_t made = 0;     ///< Predictions that were acted on and whose outcome is known.
    std::uint64_t hits = 0;     ///< The job began after the gates were closed, before the lapse.
    std::uint64_t paid_ns = 0;  ///< Time with closed gates and no job.
  };

  static constexpr std::size_t kKept = 16;    ///< The number of intervals and outcomes that count.
  static constexpr std::size_t kEnough = 12;  ///< So many of them must be regular, or hits.
  static constexpr std::uint64_t kLongestNs = 2'000'000'000;
  /// A regular interval differs from the median by at most this, or by a fiftieth of the median if
  /// that is more.
  static constexpr std::uint64_t kToleranceNs = 300'000;
  /// A prediction lapses this long after the latest usual time.
  static constexpr std::uint64_t kGraceNs = 1'000'000;
  /// Work that follows a job within this time belongs to the job: a program that does not mark its
  /// jobs may synchronise in the middle of one. No interval is shorter than this.
  static constexpr std::uint64_t kSameJobNs = 1'000'000;
  /// One job in between may be missing. After two, nothing is expected until a job comes.
  static constexpr std::uint64_t kMostAhead = 2;
  /// Gates may be closed without a job for one part in ten of the time.
  static constexpr std::uint64_t kPaidPart = 10;
  /// The number of jobs without a prediction after predictions did not pay; doubled each time.
  static constexpr std::uint32_t kFirstPause = 16;
  static constexpr std::uint32_t kLongestPause = 1024;

  void began(std::uint64_t now_ns) noexcept;
  void ended(std::uint64_t now_ns) noexcept { last_end_ns_ = now_ns; }

  [[nodiscard]] const std::optional<Expected>& expected() const noexcept { return expected_; }
  /// Whether closing the gates `lead_ns` before the expected start costs a small enough part of the
  /// time if every prediction is right.
  [[nodiscard]] bool affordable(std::uint64_t lead_ns) const noexcept;

  /// The expected job will be acted on: if it comes before the gates close, it counts as a miss.
  void watch() noexcept {
    if (state_ == State::kIgnored) state_ = State::kWatched;
  }
  /// The gates should close now, and another job keeps them closed already: neither hit nor miss.
  void excuse() noexcept {
    if (state_ == State::kWatched) state_ = State::kExcused;
  }
  void closed(std::uint64_t now_ns) noexcept;
  /// The expected job has lapsed, with gates closed or not. The next one may be expected now.
  void lapsed(std::uint64_t now_ns) noexcept;
  /// The prediction is not acted on any more, and the gates are open.
  void dropped(std::uint64_t now_ns) noexcept;

  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

 private:
  enum class State { kIgnored, kWatched, kExcused, kClosed };
  struct Rhythm {
    std::uint64_t period_ns;
    std::int64_t early_ns;  ///< One job in ten comes earlier than this after its time.
    std::int64_t late_ns;   ///< One job in ten comes later than this.
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
  std::uint64_t ahead_ = 0;  ///< Periods from the last begin to the expected one.
  std::uint64_t closed_ns_ = 0;

  std::array<Outcome, kKept> outcomes_{};  ///< Since the last pause; missing ones count as hits.
  std::size_t decided_ = 0;
  std::uint32_t pause_ = 0;  ///< Jobs until the next prediction.
  std::uint32_t next_pause_ = kFirstPause;
  Tally tally_;
};

}  // namespace sluice::intercept
