#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "intercept/jobs/alone_times.hpp"
#include "intercept/jobs/last_values.hpp"
#include "shm/board.hpp"
#include "shm/target.hpp"

namespace sluice::intercept {

/// Decides when the gates close for a job of a client with a target: as late as the target allows.
/// docs/reference/targets.md has the law and its reasons. Reads no clock: all times are
/// CLOCK_MONOTONIC ns, and are given in order. Allocates nothing. Not thread-safe.
class TargetLaw {
 public:
  /// The first jobs of a process do not count: they load and compile.
  static constexpr std::uint64_t kFirst = 8;
  /// Jobs with closed gates that must have run before gates may close late.
  static constexpr std::size_t kEnough = 32;
  /// Jobs with closed gates whose duration and progress are kept.
  static constexpr std::size_t kKept = 64;
  /// The number of errors that are kept: enough for p99, and for one accident among them.
  static constexpr std::size_t kErrors = 256;
  /// Every so many jobs, one runs with closed gates, so that what is learned follows the program.
  static constexpr std::uint64_t kReferencePeriod = 16;
  /// A few jobs that take so many times the median do not count: they loaded or compiled something.
  static constexpr std::uint64_t kOutlier = 8;
  /// The gates close if they could stay open no longer than this.
  static constexpr std::uint64_t kLeastNs = 50'000;
  /// Jobs that show what one takes alone come so many at a time, because what runs below has to
  /// come to its gate first. So long do the gates stay closed behind each of them. Of GPU time.
  static constexpr std::uint64_t kAloneBlock = 4;
  static constexpr std::uint64_t kHoldNs = 200'000'000;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// `confirm_ns`: see AloneTimes.
  explicit TargetLaw(std::uint64_t confirm_ns = 0) noexcept : alone_(confirm_ns) {}

  struct Step {
    bool close;             ///< The gates must be closed from now on.
    std::uint64_t look_ns;  ///< When to call look() again; kNever: not for this job.
  };

  /// Replaces the target. What was learned of the program's jobs stays.
  void set(shm::Target target) noexcept;
  [[nodiscard]] const shm::Target& target() const noexcept { return target_; }

  /// More was spent than the program gives, so that jobs close their gates at once. What it gives
  /// binds a target only if the user has set both.
  void set_overdrawn(bool overdrawn) noexcept { overdrawn_ = overdrawn; }
  /// What jobs with open gates took longer since the last call, than those with closed gates.
  [[nodiscard]] double take_spent() noexcept { return std::exchange(spent_ns_, 0.0); }

  /// A job begins. `contended`: there is a client that closed gates would hold. `closed`: the gates
  /// are closed already.
  Step begin(std::uint64_t now_ns, bool contended, bool closed) noexcept;
  /// Instead of begin(), for a job that begins while the target does not apply: it is no sample.
  void skip() noexcept { runs_ = false; }
  /// The gates were open in the job for another reason: it may be late, and shows nothing else.
  void no_sample() noexcept { sample_ = false; }
  /// `launches`: the launches that the job has made.
  Step look(std::uint64_t now_ns, std::uint64_t launches) noexcept;
  /// The job ends. `alone`: no neighbour of any priority ran or still runs, in or outside Sluice.
  /// Returns whether the job ended in time; nothing while the time is unknown.
  std::optional<bool> ended(std::uint64_t now_ns, std::uint64_t launches,
                            bool alone = true) noexcept;
  /// A program outside Sluice has been seen.
  void somebody_outside(std::uint64_t now_ns) noexcept;
  /// Whether the gates should be closed before the next job, so that it may be alone.
  [[nodiscard]] bool wants_quiet() const noexcept;

  /// Whether the gates may stay open when the next job begins.
  [[nodiscard]] bool may_begin_open() const noexcept;
  /// A job must end in this time; 0 while unknown.
  [[nodiscard]] std::uint64_t limit_ns() const noexcept { return limit_ns_; }
  /// The duration of jobs that were alone, at the target's percentile; 0 while unknown.
  [[nodiscard]] std::uint64_t alone_ns() const noexcept { return alone_ns_; }
  [[nodiscard]] shm::TargetState state() const noexcept { return state_; }

 private:
  /// The progress of one job with closed gates.
  struct Curve {
    static constexpr std::size_t kPoints = 32;
    struct Point {
      std::uint64_t ns;  ///< Since the begin of the job.
      std::uint64_t launches;
    };
    std::array<Point, kPoints> points{};
    std::size_t size = 0;
    void add(Point point, std::uint64_t& step_ns) noexcept;
    /// The time that is left when the job has made `launches`; nothing if it makes fewer.
    [[nodiscard]] std::optional<std::uint64_t> left_at(std::uint64_t launches) const noexcept;
  };
  enum class Mode { kReference, kOpen, kLate };

  void learn(std::uint64_t took_ns, std::uint64_t launches) noexcept;
  [[nodiscard]] bool is_faster_open() const noexcept;
  void learn_anew() noexcept;
  void update() noexcept;
  [[nodiscard]] std::optional<std::uint64_t> time_left(std::uint64_t launches) const noexcept;
  [[nodiscard]] std::int64_t margin_ns() const noexcept;
  [[nodiscard]] std::int64_t slack_at(std::uint64_t now_ns, std::uint64_t left_ns) const noexcept;

  shm::Target target_;
  shm::TargetState state_ = shm::TargetState::kNone;
  std::uint64_t limit_ns_ = 0;
  std::uint64_t alone_ns_ = 0;
  std::int64_t margin_ns_ = 0;
  std::uint64_t whole_ns_ = 0;  ///< The time left at the begin of a job; 0 while unknown.
  std::uint64_t jobs_ = 0;

  LastValues<Curve, kKept> curves_;
  AloneTimes<kKept> alone_;
  std::uint64_t now_ns_ = 0;
  LastValues<std::uint64_t, kKept> totals_;  ///< Durations of jobs with closed gates.
  LastValues<std::uint64_t, kKept> open_;    ///< Durations of jobs that began with open gates.
  LastValues<std::int64_t, kErrors> errors_;

  bool overdrawn_ = false;
  double spent_ns_ = 0;
  double closed_ns_ = 0;  ///< What the last jobs with closed gates took: the mean.

  // The job that runs.
  bool runs_ = false;  ///< It began when there was a target.
  bool sample_ = true;
  Mode mode_ = Mode::kReference;
  bool decided_ = false;  ///< Its time left decided when the gates closed.
  std::uint64_t began_ns_ = 0;
  Curve curve_;
  std::uint64_t step_ns_ = 0;
  std::uint64_t planned_ns_ = 0;
  std::uint64_t looked_ns_ = 0;
  std::uint64_t expected_left_ns_ = 0;
};

}  // namespace sluice::intercept
