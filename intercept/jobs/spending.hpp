#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::intercept {

/// What a client gives to those below, as a part of the time of its jobs and steps, and what has
/// been spent of it in the last minute. All levers spend from it: docs/reference/give.md has the
/// rule. Reads no clock, allocates nothing. Not thread-safe.
class Spending {
 public:
  /// What makes items longer: gates that close late in a job, windows, gates that stay open in
  /// steps.
  enum class Lever : std::uint8_t { kClosing, kWindows, kOpen };
  static constexpr std::size_t kLevers = 3;
  /// So fast is forgotten what was spent, and the time that has paid for it.
  static constexpr double kMinuteNs = 60e9;
  /// What the first items spend counts as if so many had paid for it.
  static constexpr double kFirstItems = 64;
  /// What is overspent is paid back until so much of what is given is left.
  static constexpr double kRepaid = 0.2;
  /// So much of what is given is left for windows in any case: nobody below is at nothing for long.
  static constexpr double kLeast = 0.1;

  /// `part`: of the time of an item.
  void set(double part) noexcept { part_ = part; }
  /// A job or a step has ended.
  void ended(std::uint64_t now_ns, std::uint64_t took_ns) noexcept;
  /// What a lever made items longer by. Negative: less than was thought before.
  void spend(Lever lever, double ns) noexcept;

  [[nodiscard]] double part() const noexcept { return part_; }
  /// For windows and for gates that stay open: what closing late, which gives more for less, leaves
  /// of what is given.
  [[nodiscard]] double left() const noexcept;
  /// More was spent than is given, and is paid back.
  [[nodiscard]] bool is_overdrawn() const noexcept { return overdrawn_; }
  /// In the last minute, as a part of what the items would have taken.
  [[nodiscard]] double spent(Lever lever) const noexcept;
  /// Whether so many items have ended that spent() says something.
  [[nodiscard]] bool is_known() const noexcept { return items_ >= kFirstItems; }

 private:
  [[nodiscard]] double all_spent() const noexcept;
  [[nodiscard]] double alone_ns() const noexcept;

  double part_ = 0;
  std::array<double, kLevers> spent_ns_{};
  double took_ns_ = 0;
  double items_ = 0;
  double item_ns_ = 0;  ///< What one takes, on average.
  std::uint64_t now_ns_ = 0;
  bool overdrawn_ = false;
};

}  // namespace sluice::intercept
