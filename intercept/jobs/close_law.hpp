#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "intercept/jobs/last_values.hpp"
#include "intercept/jobs/trial_budget.hpp"
#include "intercept/slot/bet.hpp"
#include "intercept/slot/draw.hpp"
#include "shm/board.hpp"
#include "shm/give.hpp"

namespace sluice::intercept {

/// Finds, by trial, how late the gates may close in a job without harm to it.
/// docs/reference/closing.md has the law and its reasons. Reads no clock, allocates nothing, and
/// its memory is bounded. Not thread-safe.
class CloseLaw {
 public:
  /// Levels: 0 closes at the first launch, kWaitLevel when the job waits; those between close after
  /// as many eighths of the job. kNeverLevel does not close at all.
  static constexpr unsigned kWaitLevel = 8;
  static constexpr unsigned kNeverLevel = shm::CloseWord::kNeverLevel;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  static constexpr std::uint64_t kFirst = 8;  ///< Jobs that load and compile; they do not count.
  static constexpr std::size_t kEnough = 16;  ///< References that must be known before a trial.
  static constexpr std::uint64_t kShortestLatestNs = 20'000'000;  ///< See Decision::latest_ns.
  static constexpr std::uint64_t kFewLaunches = 16;  ///< Below this, a level is a part of the time.
  /// The wealth of a bet that is enough for a step of the search, or to end a level.
  static constexpr double kSure = 100;
  /// The wealth that ends a search. A search ends at one of five levels at most, so its end is
  /// wrong in one case in 100 at most.
  static constexpr double kCertain = 500;
  /// The wealth of an alarm that ends a level. A level that costs nothing ends so after some hours.
  static constexpr double kAlarm = 1000;
  /// The wealth at which a level at rest is watched closely: of bets on pairs, and on single jobs.
  static constexpr double kSuspicion = 4;
  static constexpr double kJobSuspicion = 32;
  /// The same, at a level that is being confirmed.
  static constexpr double kDoubt = 1.5;
  static constexpr double kMoreLate = 0.01;  ///< Jobs that may be late on top of the references.
  /// A level that is not shown harmless by then is given up: at the median, in the tail.
  static constexpr std::uint64_t kMostPairs = 512;
  static constexpr std::uint64_t kMostTailPairs = 2048;
  /// Jobs before the first trial of a program that keeps the GPU busy: trials are then fewer than
  /// one job in a hundred. And jobs between two trials of the next level: twice as many after each
  /// that fails, half as many after a climb that ends well.
  static constexpr std::uint64_t kFirstPause = 4096;
  static constexpr std::uint64_t kLongestPause = 1U << 17U;
  static constexpr std::uint64_t kNeverPeriodNs = 1'800'000'000'000;
  static constexpr std::size_t kReferences = 128;
  static constexpr std::size_t kCosts = 64;
  static constexpr std::size_t kEntries = 64;

  /// What a trial may cost, in thousandths of the median and of the p99 of durations.
  struct Allowed {
    std::uint32_t median = shm::kDefaultGive * 2 / 5;
    std::uint32_t tail = shm::kDefaultGive;
    /// `given`: by the program, in 1/1000. Most of it is left to means above the median.
    [[nodiscard]] static Allowed of(std::uint32_t given) noexcept { return {given * 2 / 5, given}; }
  };

  /// When the gates close in one job. A thread that enters a wait closes them in any case, unless
  /// `when` is kNever.
  struct Decision {
    enum class When : std::uint8_t { kFirst, kAfterLaunches, kAfterTime, kAtWait, kNever };
    When when = When::kFirst;
    std::uint64_t launches = 0;  ///< kAfterLaunches: the gates close when the job has made so many.
    /// Since the begin of the job. kAfterTime: the gates close then. kAfterLaunches: the launches
    /// will have been made by about then.
    std::uint64_t ns = 0;
    /// Since the begin of the job: the gates close then in any case. The job is much longer than
    /// those that are known, and one that does not end is no evidence.
    std::uint64_t latest_ns = 0;

   private:
    friend class CloseLaw;
    enum class Role : std::uint8_t { kNone, kFact, kReference, kTrial };
    Role role_ = Role::kNone;
    std::size_t entry_ = 0;
    std::uint64_t neighbours_ = 0;
    std::uint64_t trial_ = 0;
  };

  /// What was seen of a job.
  struct Job {
    std::uint64_t waited_ns = 0;  ///< Inside calls that block.
    std::uint64_t duration_ns = 0;
    std::uint64_t launches = 0;
    std::uint64_t closed_ns =
        kNever;  ///< Since the begin; 0: from the first launch; kNever: never.
    /// A client below ran or was held. False: the job shows what the program is, but no cost.
    bool neighbour_busy = false;
    std::uint64_t neighbours = 0;  ///< As for decide(), when the job ended.
  };

  using State = shm::CloseState;
  struct Status {
    State state = State::kLearning;
    unsigned level = 0;   ///< Of the jobs that are not references.
    bool trying = false;  ///< Another level is being tried.
    std::uint64_t jobs = 0;
    std::uint64_t pairs = 0;  ///< That were compared at this level.
    /// The median of what the last pairs waited longer than their references, and its 95 %
    /// interval.
    std::int64_t cost_ns = 0;
    std::int64_t cost_low_ns = 0;
    std::int64_t cost_high_ns = 0;
  };

  CloseLaw() noexcept = default;
  /// Tests of the confidence allow one of the two only.
  explicit CloseLaw(Allowed allowed) noexcept : allowed_(allowed) {}

  /// What a trial may cost from now on.
  void set(Allowed allowed) noexcept { allowed_ = allowed; }
  /// While more was spent than is given, all gates close at the first launch.
  void set_overdrawn(bool overdrawn) noexcept { overdrawn_ = overdrawn; }
  /// What jobs with late gates took longer since the last call, than those that closed at first.
  [[nodiscard]] double take_spent() noexcept { return std::exchange(spent_ns_, 0.0); }

  /// A job begins. `fingerprint`: jobs with the same one are alike. `neighbours`: names the set of
  /// clients that closed gates would hold; 0: none. `narrow`: they use but a part of the SMs, so
  /// that late gates may be harmless in a program that keeps the GPU busy, too.
  [[nodiscard]] Decision decide(std::uint64_t fingerprint, std::uint64_t neighbours,
                                std::uint64_t now_ns, bool narrow = false) noexcept;
  /// The job ended. Jobs that are never reported do no harm.
  void ended(const Decision& decision, const Job& job) noexcept;

  /// Whether the gates close at the first launch of all jobs of this fingerprint: nothing else has
  /// been found, and nothing is being tried.
  [[nodiscard]] bool closes_at_first(std::uint64_t fingerprint,
                                     std::uint64_t neighbours) const noexcept;
  /// kLearning for a fingerprint that is not known (any more).
  [[nodiscard]] Status status(std::uint64_t fingerprint, std::uint64_t neighbours) const noexcept;

 private:
  enum class Phase : std::uint8_t { kHold, kTry, kConfirm };
  struct Sample {
    std::uint64_t waited_ns;
    std::uint64_t duration_ns;
    std::uint64_t launches;
  };
  /// The claims about one level.
  struct Bets {
    Bet median_harmless, tail_harmless;
    Bet median_harmful, tail_harmful, duration_harmful;
    Bet grew_harmful;  ///< An alarm.
    [[nodiscard]] double harmful() const noexcept;
  };
  /// What follows from the references.
  struct Facts {
    std::uint64_t launches = 0;     ///< Median.
    std::uint64_t duration_ns = 0;  ///< Median.
    std::uint64_t waited_ns = 0;    ///< Median.
    bool keeps_gpu_busy = false;    ///< Jobs wait for the GPU for most of their time.
    bool waits = false;             ///< They wait for it at all.
    double median_allowed_ns = 0;
    double tail_wait_ns = 0;  ///< One reference in a hundred waits longer.
    double tail_allowed_ns = 0;
  };
  struct Entry {
    [[nodiscard]] bool is(std::uint64_t a_fingerprint,
                          std::uint64_t some_neighbours) const noexcept {
      return fingerprint == a_fingerprint && neighbours == some_neighbours;
    }

    std::uint64_t fingerprint = 0;
    std::uint64_t neighbours = 0;
    std::uint64_t used = 0;  ///< When; 0: free.
    std::uint64_t jobs = 0;
    LastValues<Sample, kReferences> references;
    Facts facts;

    Phase phase = Phase::kHold;
    unsigned level = 0;      ///< That is tried, confirmed or held.
    unsigned home = 0;       ///< Where a trial that fails returns to.
    bool confirmed = false;  ///< `home` was the end of a search.
    bool climbed = false;    ///< It came from a trial, not from a fall.
    unsigned drop = 1;       ///< Levels that the next fall goes down.
    std::uint64_t retry_at = 0;
    std::uint64_t pause = kFirstPause;
    std::optional<std::uint64_t> tried_never_ns;

    std::uint64_t trial = 0;  ///< Names the group and its level, for jobs that end later.
    std::uint64_t place = 0;  ///< Of the next job in its group.
    std::uint64_t period = 0;
    std::uint64_t reference_place = 0;
    std::uint64_t compared_place = 0;
    std::optional<Sample> reference;
    std::optional<Sample> compared;
    Bets bets;
    Bet suspicion;  ///< An alarm on single jobs at rest. It proves nothing: references may be old.
    std::uint64_t pairs = 0;
    double paid = 0;  ///< By this trial, from the budget.
    LastValues<std::int64_t, kCosts> costs;
    // Of the last jobs that closed at first: means.
    double first_wait_ns = 0;
    double first_duration_ns = 0;
    double first_jobs = 0;
  };

  [[nodiscard]] const Entry* find(std::uint64_t fingerprint,
                                  std::uint64_t neighbours) const noexcept;
  [[nodiscard]] bool knows(std::uint64_t fingerprint) const noexcept;
  void choose_trial(Entry& entry, std::uint64_t now_ns, bool narrow) noexcept;
  void test(Entry& entry, unsigned level, Phase phase) noexcept;
  void begin_group(Entry& entry) noexcept;
  void remember(Entry& entry, const Sample& reference) noexcept;
  void compare(Entry& entry) noexcept;
  void pay(Entry& entry, double jobs) noexcept;
  void charge(Entry& entry, const Decision& decision, const Job& job) noexcept;
  static void suspect(Entry& entry, const Job& job) noexcept;
  [[nodiscard]] static bool rests(const Entry& entry) noexcept;
  [[nodiscard]] bool waits(const Entry& entry) const noexcept;
  void conclude(Entry& entry) noexcept;
  void go_up(Entry& entry) noexcept;
  static void rest(Entry& entry) noexcept;
  void give_up(Entry& entry) noexcept;
  void fall(Entry& entry) noexcept;
  static void wait_longer(Entry& entry) noexcept;

  Allowed allowed_;
  bool overdrawn_ = false;
  double spent_ns_ = 0;
  std::array<Entry, kEntries> entries_{};
  std::uint64_t uses_ = 0;
  std::uint64_t trials_ = 0;
  TrialBudget budget_;
  Draw draw_;
};

}  // namespace sluice::intercept
