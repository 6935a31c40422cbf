#pragma once
#include <cstdint>

#include "intercept/slot/bet.hpp"
#include "intercept/slot/draw.hpp"
#include "shm/give.hpp"

namespace sluice::intercept {

/// Finds, by trial, whether the gates may stay open while a program that is never idle runs its
/// steps: whether closing them brings it anything. docs/reference/steps.md has the rule and its
/// reasons. Reads no clock, allocates nothing. Not thread-safe.
class StayOpen {
 public:
  /// What the gates do in the steps that come now.
  enum class Gates : std::uint8_t { kWindows, kClosed, kOpen };
  enum class State : std::uint8_t { kResting, kTrying, kOpen };

  static constexpr std::uint64_t kBlock = 4;  ///< Steps that count.
  /// Behind those that do not count: one, and so many ns. They may feel the block before them.
  static constexpr double kSettleNs = 10'000'000;  ///< Of GPU time.
  /// Steps after which a block that has not ended ends the trial.
  static constexpr std::uint64_t kMostOfBlock = 512;
  /// Time slices follow the state; pairs of the time before say nothing.
  static constexpr double kSlicesNs = 600'000'000;
  /// The part by which a step may be longer, as windows may make it, unless set_part() is called.
  static constexpr double kMore = shm::kDefaultGive / 1000.0;
  static constexpr double kMoreLate = 0.01;  ///< Steps that may be late on top of the closed ones.
  static constexpr double kSure = 100;       ///< The wealth of a bet that decides.
  static constexpr double kDoubt = 8;        ///< The wealth of a bet on harm that ends a trial.
  static constexpr double kLikely =
      2;  ///< The wealth at which a trial leaves the gates open mostly.
  static constexpr double kSuspicion = 4;  ///< The wealth at which open gates are watched closely.
  static constexpr std::uint64_t kFirstSteps = 64;    ///< Before the first trial.
  static constexpr std::uint64_t kFirstPause = 4096;  ///< Steps between two trials, at first.
  static constexpr std::uint64_t kLongestPause = 1U << 17U;
  static constexpr std::uint64_t kMostSteps = 1U << 16U;  ///< Of a trial.
  static constexpr std::uint64_t kHoldBlocks = 32;        ///< Of which one has closed gates.
  static constexpr std::uint64_t kLikelyBlocks = 8;       ///< The same, of a trial that goes well.
  /// A program that waits for so much of its steps keeps the GPU busy.
  static constexpr double kBusy = 2.0 / 3;

  struct Step {
    double ns = 0;
    double part = 1;       ///< Its time, divided by what steps of its kind take with closed gates.
    double open_part = 0;  ///< Of its time, with open gates.
    bool late = false;     ///< Few steps with closed gates are so long.
    double waited_part = 0;  ///< Of its time, in waits.
    bool may_try = true;     ///< What earlier trials cost is paid.
  };

  /// `time_scale`: real time divided by GPU time.
  explicit StayOpen(double time_scale = 1) noexcept : time_scale_(time_scale) {}

  void set_part(double part) noexcept { part_ = part; }

  [[nodiscard]] Gates gates() const noexcept;
  [[nodiscard]] State state() const noexcept { return state_; }
  /// Those below use but a part of the SMs, so that open gates may cost little in a program that
  /// keeps the GPU busy, too: the first trial comes at once.
  void set_narrow(bool narrow) noexcept { narrow_ = narrow; }
  /// A step has ended whose kind is known. `usual`: the gates may open in it.
  void ended(const Step& step, bool usual) noexcept;
  /// Others are below now, so that nothing is known.
  void begin_anew() noexcept {
    const StayOpen before = *this;
    *this = StayOpen(time_scale_);
    part_ = before.part_;
    narrow_ = before.narrow_;
  }
  /// Open gates may harm: a pair of blocks comes now. Not in the middle of one.
  void ask() noexcept;
  /// Ends a trial, or open gates. The next trial comes after a pause.
  void give_up() noexcept;

 private:
  struct Block {
    double sum = 0;
    bool late = false;
  };
  void count(const Step& step) noexcept;
  void begin_trial() noexcept;
  void begin_block() noexcept;
  void begin_group() noexcept;
  [[nodiscard]] double harmful() const noexcept;
  [[nodiscard]] std::uint64_t blocks() const noexcept;
  void compare() noexcept;

  double time_scale_;
  double part_ = kMore;
  bool narrow_ = false;
  State state_ = State::kResting;
  std::uint64_t rested_ = 0;  ///< Steps.
  std::uint64_t pause_ = 0;
  std::uint64_t next_pause_ = kFirstPause;
  double waited_part_ = 1;
  // Of the trial, and of open gates.
  std::uint64_t steps_ = 0;
  double ns_ = 0;

  std::uint64_t place_ = 0;  ///< Of the block in its group.
  bool closed_first_ = false;
  double settled_ns_ = 0;  ///< Steps of the block that do not count.
  std::uint64_t counted_ = 0;
  std::uint64_t block_steps_ = 0;
  Block block_, closed_, open_;
  double open_blocks_ = 0;      ///< Of the group,
  double late_blocks_ = 0;      ///< and those with a late step.
  Bet longer_, later_;          ///< Claim that staying open harms.
  Bet not_longer_, not_later_;  ///< Claim that it does not.
  Draw draw_;
};

}  // namespace sluice::intercept
