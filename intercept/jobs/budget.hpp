#pragma once
#include <array>
#include <cstdint>
#include <utility>

#include "shm/give.hpp"

namespace sluice::intercept {

/// What those below get in any case: while a program is never idle, a part of its time pays for
/// windows, whether or not it has steps. docs/reference/closing.md has the rule and its reasons.
/// Reads no clock: all times are CLOCK_MONOTONIC ns, and are given in order. Allocates nothing. Not
/// thread-safe.
///
/// The program's time is divided into *items*: its jobs, or its steps. Open gates that are no
/// window of this budget feed those below, too, and nothing is owed to whoever is fed.
class Budget {
 public:
  /// What windows may lengthen the items by, unless set_part() says otherwise.
  static constexpr double kAllowed = shm::kDefaultGive / 1000.0;
  // Of GPU time:
  static constexpr double kShortestNs = 1e6;
  static constexpr double kLongestNs = 25e6;
  /// So long reaches what others give, and what is paid for and not used yet.
  static constexpr double kReachNs = 1e9;
  /// An item that is so old has windows in its middle, and cannot show what they cost.
  static constexpr double kLongItemNs = 500e6;
  /// An item that begins so soon behind a window may feel it.
  static constexpr double kSettleNs = 25e6;
  /// A group of windows ends with a pause, in which so many items and ns show what items take
  /// without windows. It ends in any case, at last.
  static constexpr int kGroup = 16;
  static constexpr int kPauseItems = 4;
  static constexpr double kPauseNs = 125e6;
  static constexpr double kLongestPauseNs = 500e6;
  /// After so long without open gates, a window opens although a debt is left.
  static constexpr double kHungerNs = 0.9e9;

  enum class Gates : std::uint8_t { kOpen, kWindow, kClosed };

  /// `time_scale`: real time divided by GPU time. A program that has just begun may be idle soon,
  /// so it owes nothing.
  explicit Budget(double time_scale = 1) noexcept
      : scale_(time_scale), fed_ns_(kAllowed * kReachNs * time_scale) {}

  /// What windows may lengthen the items by from now on; 0: nothing.
  void set_part(double part) noexcept { part_ = part; }
  /// What windows have cost since the last call, as far as known. May be negative.
  [[nodiscard]] double take_spent() noexcept { return std::exchange(spent_ns_, 0.0); }

  /// Those whom windows let run. Others cost something else. `overrun_ns`: of GPU time, the longest
  /// work of theirs that does not end with its window. `others`: programs that have a time slice
  /// each before a window is of any use.
  void neighbours(std::uint64_t id, std::uint64_t overrun_ns, std::uint32_t others) noexcept;
  /// From now on. `kWindow`: this budget pays.
  void set_gates(Gates gates, std::uint64_t now_ns) noexcept;
  void began(std::uint64_t now_ns) noexcept;
  /// The item ends. `kind`: items that begin with the same work are alike.
  void ended(std::uint64_t kind, std::uint64_t now_ns) noexcept;
  /// It ends, and has paid for windows of somebody else.
  void ended_elsewhere(std::uint64_t now_ns) noexcept;

  /// For how long the gates may open now, at the begin of an item or in its middle; 0: not at all.
  /// `seldom`: only where nothing has been open for long, because a target leaves hardly any time.
  [[nodiscard]] std::uint64_t window_ns(bool at_begin, std::uint64_t now_ns,
                                        bool seldom = false) noexcept;
  /// Whether those below depend on windows: they have had no other open gates of late.
  [[nodiscard]] bool feeds() const noexcept { return fed_ns_ <= 0; }
  /// What windows lengthen the items by, in 1/1000: an estimate.
  [[nodiscard]] std::uint32_t cost() const noexcept;

 private:
  struct Kind {
    std::uint64_t kind = 0;
    std::uint64_t used = 0;
    std::uint32_t items = 0;  ///< That no window touched.
    double mean_ns = 0;       ///< Of the last ones.
  };
  /// Items, and what their kinds take on average.
  struct Items {
    double took_ns = 0;
    double mean_ns = 0;
    int count = 0;
    [[nodiscard]] double pace() const noexcept { return mean_ns > 0 ? took_ns / mean_ns : 0; }
  };
  void go_to(std::uint64_t now_ns) noexcept;
  void count_open(double passed_ns) noexcept;
  void count_closed(double passed_ns) noexcept;
  void count_window() noexcept;
  void charge(double cost_ns) noexcept;
  void settle_group() noexcept;
  [[nodiscard]] bool pauses(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool is_hungry(std::uint64_t now_ns) const noexcept;
  [[nodiscard]] double prior_cost(double window_ns) const noexcept;
  [[nodiscard]] double ratio() const noexcept;
  [[nodiscard]] double shortest_ns() const noexcept;
  [[nodiscard]] double settle_ns() const noexcept;

  double scale_;
  double part_ = kAllowed;
  double spent_ns_ = 0;
  std::array<Kind, 32> kinds_{};
  Kind any_;  ///< Of items whose kind is not known.
  std::uint64_t uses_ = 0;

  std::uint64_t now_ns_ = 0;
  Gates gates_ = Gates::kOpen;
  std::uint64_t last_open_ns_ = 0;  ///< For long enough.
  double open_ns_ = 0;              ///< Since the gates opened, without a window.
  double fed_ns_;                   ///< What others give, of the time to come.
  double credit_ns_ = 0;            ///< What items have paid, and windows have not cost yet.
  double paid_ns_ = 0;              ///< For the cost that is shown: time, and what windows cost.
  double lost_ns_ = 0;

  std::uint64_t neighbours_ = 0;
  double overrun_ns_ = 0;
  std::uint32_t others_ = 0;
  double cost_sum_ns_ = 0;  ///< Of windows, which fade.
  double prior_sum_ns_ = 0;

  std::uint64_t window_end_ns_ = 0;  ///< Of the last one.
  double window_ns_ = 0;             ///< The one that is open, or was the last.
  double noise_ = 0.01;  ///< By what the items of two pauses differ: the mean of the square.
  double groups_ = 1;
  // Of the group.
  int windows_ = 0;
  double group_prior_ns_ = 0;
  double charged_ns_ = 0;
  Items touched_, untouched_;
  double pace_before_ = 0;  ///< Without windows, before the group; 0: unknown.

  // The item that runs.
  bool runs_ = false;
  bool feels_ = false;  ///< A window touches it.
  std::uint64_t began_ns_ = 0;
};

}  // namespace sluice::intercept
