#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "intercept/jobs/alone_times.hpp"
#include "intercept/jobs/last_values.hpp"
#include "intercept/jobs/stay_open.hpp"
#include "intercept/slot/draw.hpp"
#include "shm/give.hpp"
#include "shm/target.hpp"

namespace sluice::intercept {

/// Decides when, and for how long, the gates below open while a program that is never idle runs its
/// steps. docs/reference/steps.md has the rule and its reasons. Reads no clock, allocates nothing,
/// and its memory is bounded. Not thread-safe.
class StepLaw {
 public:
  static constexpr std::size_t kKinds =
      64;  ///< A server may have a graph for each size of its batch.
  /// Steps with closed gates that must be known of a kind before a window may open in one.
  static constexpr std::size_t kEnough = 16;
  static constexpr std::size_t kKept = 128;                      ///< Durations of a kind.
  static constexpr std::uint64_t kShortestWindowNs = 1'000'000;  ///< Of GPU time.
  /// A kind is long if its median is so many times that of the most frequent kind.
  static constexpr double kLong = 2;
  /// What windows may lengthen the steps by, without a target and unless set_part() says otherwise.
  static constexpr double kAllowed = shm::kDefaultGive / 1000.0;
  /// A step of a time alone begins so long after a window.
  static constexpr double kSettleNs = 25e6;
  /// One step in so many, and the one before it, have no window: they show what a step takes alone.
  static constexpr std::uint64_t kReferencePeriod = 16;

  /// A kind of steps. It is unknown again after the kind has been forgotten; 0: unknown.
  using Kind = std::uint64_t;

  /// `time_scale`: real time divided by GPU time. `confirm_ns`: see AloneTimes.
  explicit StepLaw(double time_scale = 1, std::uint64_t confirm_ns = 0) noexcept
      : shortest_ns_(static_cast<double>(kShortestWindowNs) * time_scale),
        stay_open_(time_scale),
        alone_(confirm_ns) {}

  /// What windows and open gates may lengthen the steps by from now on; 0: nothing. `binds`: also
  /// with a target.
  void set_part(double part, bool binds = false) noexcept {
    part_ = part;
    binds_ = binds;
    stay_open_.set_part(part);
  }
  struct Spent {
    double windows_ns = 0;
    double open_ns = 0;  ///< By gates that stayed open.
  };
  /// What they have cost since the last call, as far as known.
  [[nodiscard]] Spent take_spent() noexcept { return std::exchange(spent_, {}); }

  /// Replaces the target, which is of steps or none.
  void set(shm::Target target) noexcept;
  /// Names those whom windows let run. Others cost something else. `narrow`: see StayOpen.
  void neighbours(std::uint64_t id, bool narrow = false) noexcept;

  /// The kind of a step: `key` names the graph or the first kernel, and the launches are as many as
  /// those of the kind, to a quarter. Makes a new kind if none fits, in place of the least recently
  /// used one.
  Kind kind_of(std::uint64_t key, std::uint64_t launches) noexcept;
  /// A step ended. `open_ns`: for how long the gates were open since the step before it ended.
  /// `waited_ns`: its time in waits. `alone`: no neighbour of any priority ran or still runs, in or
  /// outside Sluice. `now_ns` only tells when that is sure.
  void ended(Kind kind, std::uint64_t duration_ns, std::uint64_t open_ns, std::uint64_t waited_ns,
             bool alone = true, std::uint64_t now_ns = 0) noexcept;
  /// A program outside Sluice has been seen.
  void somebody_outside(std::uint64_t now_ns) noexcept { alone_.forget_unsure(now_ns); }
  /// For how long the gates may open now; 0: they stay closed. Not if a step that the program has
  /// given and that has not ended is not usual.
  [[nodiscard]] std::uint64_t window_ns() const noexcept;
  /// Whether the gates stay open beyond the step: to try it, or because it costs nothing.
  [[nodiscard]] bool stays_open() const noexcept {
    return stay_open_.gates() == StayOpen::Gates::kOpen;
  }
  [[nodiscard]] StayOpen::State staying() const noexcept { return stay_open_.state(); }
  /// Whether steps of this kind may have a window: it is known, and not long.
  [[nodiscard]] bool is_usual(Kind kind) const noexcept;

  struct Shown {
    Kind kind = 0;
    std::uint32_t share = 0;  ///< Of the last steps, in 1/1000.
    std::uint64_t p50_ns = 0;
    std::uint64_t p99_ns = 0;
  };
  /// The most frequent kinds, the first one first. `kind` is 0 if there are fewer.
  [[nodiscard]] std::array<Shown, 4> shown() const noexcept;
  /// What windows lengthen the steps by, in 1/1000.
  [[nodiscard]] std::uint32_t cost() const noexcept;
  /// Whether too little is known: of the steps, or of a target, which then counts as none.
  [[nodiscard]] bool learning() const noexcept { return !knows_steps() || unknown_target(); }
  [[nodiscard]] bool knows_steps() const noexcept;

  // Of the target.
  [[nodiscard]] std::uint64_t limit_ns() const noexcept;  ///< 0 while unknown.
  [[nodiscard]] std::uint64_t alone_ns() const noexcept { return alone_ns_; }
  /// Whether the target has left no window for long.
  [[nodiscard]] bool missed() const noexcept;
  /// Whether the last step was in time. Steps that are not usual do not count.
  enum class Kept : std::uint8_t { kUncounted, kLate, kInTime };
  [[nodiscard]] Kept last_kept() const noexcept { return last_kept_; }

 private:
  struct Entry {
    Kind kind = 0;
    std::uint64_t key = 0;
    double launches = 0;
    std::uint64_t used = 0;
    double weight = 0;                        ///< Steps, which fade.
    LastValues<std::uint64_t, kKept> closed;  ///< Of steps that no window touched.
    LastValues<std::uint64_t, kKept> all;
    double level_ns = 0;  ///< What the last steps that no window touched took.
    // Of a trial of open gates: what is charged when it is known what a step takes now.
    double open_ns = 0;  ///< Steps that open gates touched.
    double open_steps = 0;
    bool refreshed = false;  ///< A step that they did not touch has ended since.
  };
  [[nodiscard]] Entry* find(Kind kind) noexcept;
  [[nodiscard]] const Entry* find(Kind kind) const noexcept;
  [[nodiscard]] const Entry& most_frequent() const noexcept;
  static void learn_closed(Entry& entry, std::uint64_t duration_ns) noexcept;
  void find_alone() noexcept;
  void draw_references() noexcept;
  [[nodiscard]] bool unknown_target() const noexcept { return target_.any() && limit_ns() == 0; }
  [[nodiscard]] bool follows_target() const noexcept;
  void learn_cost(const Entry& entry, double cost_ns, std::uint64_t open_ns, bool touched) noexcept;
  [[nodiscard]] bool is_late(std::uint64_t duration_ns) const noexcept;
  void follow_target(std::uint64_t duration_ns, bool touched) noexcept;
  void learn_accidents(const Entry& entry, std::uint64_t duration_ns) noexcept;
  void settle(const Entry& entry, double cost_ns, std::uint64_t open_ns, bool touched) noexcept;
  void begin_anew() noexcept;
  void charge_trial(Entry& entry, double took_ns, bool touched) noexcept;
  void settle_trial(StayOpen::Gates before) noexcept;
  [[nodiscard]] double beyond_ns(const Entry& entry) const noexcept;
  [[nodiscard]] double price() const noexcept;
  [[nodiscard]] std::uint64_t priced_window_ns() const noexcept;
  [[nodiscard]] bool is_reference_next() const noexcept;

  double shortest_ns_;  ///< A window. Real ns.
  double part_ = kAllowed;
  bool binds_ = false;
  Spent spent_;
  std::array<Entry, kKinds> entries_{};
  std::uint64_t kinds_ = 0;
  std::uint64_t uses_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t reference_place_ = 0;  ///< Of the references in their period.
  std::uint64_t alone_left_ = 0;       ///< Steps of the block for the time alone that runs,
  std::uint64_t alone_wait_ = 0;       ///< and those before the next one.
  Draw draw_;
  bool touched_ = true;  ///< A window was open in the last step.
  double level_ns_ = 0;  ///< Of the last usual step.

  // What windows cost. Sums over the last windows, which fade.
  std::uint64_t neighbours_ = 0;
  double open_sum_ns_ = 0;
  double cost_sum_ns_ = 0;
  // Of a step without a window, by accident, in parts of the step.
  double left_out_ = 0;
  double surprises_ = 0;
  double credit_ns_ = 0;  ///< What steps have paid and windows have not cost yet.
  double mean_cost_ = 0;  ///< Of a step, as a part of its time.
  StayOpen stay_open_;
  double debt_ns_ = 0;       ///< What trials of open gates have cost and steps have not paid yet.
  double unsettled_ns_ = 0;  ///< The same, by what steps took before.

  shm::Target target_;
  LastValues<std::uint64_t, 2 * kKept> references_;  ///< Of usual steps that no window touched.
  AloneTimes<2 * kKept> alone_;                      ///< Those of them that were alone.
  std::uint64_t now_ns_ = 0;
  std::uint64_t alone_ns_ = 0;
  std::uint64_t without_ = 0;  ///< Steps in turn for which the target leaves no window.
  double target_window_ns_ = 0;
  bool never_late_ = true;
  Kept last_kept_ = Kept::kUncounted;
};

}  // namespace sluice::intercept
