#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::shm {

/// What latency is good enough for the jobs of a client, or for its steps
/// (docs/reference/steps.md): at the given percentile, one takes at most `limit`. The limit is a
/// time, or a multiple of the time alone.
struct Target {
  enum class Unit : std::uint8_t { kNanoseconds, kTimesAlone };

  std::uint32_t per_mille = 0;  ///< The percentile in tenths: 990 is p99. 0: no target.
  Unit unit = Unit::kNanoseconds;
  std::uint64_t limit = 0;  ///< Nanoseconds, or thousandths of the time alone.
  bool of_steps = false;    ///< And not of jobs.

  static constexpr std::uint32_t kLeastPerMille = 500;
  static constexpr std::uint32_t kMostPerMille = 999;
  static constexpr std::uint64_t kMostNs = 3'600'000'000'000;
  static constexpr std::uint64_t kMostTimesAlone = 100'000;

  friend bool operator==(const Target&, const Target&) = default;

  [[nodiscard]] constexpr bool any() const noexcept { return per_mille != 0; }
  [[nodiscard]] constexpr bool is_relative() const noexcept { return unit == Unit::kTimesAlone; }
  /// Whether parse_target() can return this target. A target from a board or a message may be
  /// invalid.
  [[nodiscard]] constexpr bool valid() const noexcept {
    if (!any()) return *this == Target{};
    if (per_mille < kLeastPerMille || per_mille > kMostPerMille) return false;
    if (is_relative()) return limit >= 1000 && limit <= kMostTimesAlone;
    return limit >= 1 && limit <= kMostNs;
  }

  /// One word for the board: the limit in bits 0-47, the percentile in bits 48-58, `of_steps` in
  /// bit 62, the unit in bit 63. 0 for no target.
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return (std::uint64_t{is_relative()} << 63U) | (std::uint64_t{of_steps} << 62U) |
           (std::uint64_t{per_mille} << 48U) | limit;
  }
  [[nodiscard]] static constexpr Target unpack(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>((word >> 48U) & 0x7ffU),
            (word >> 63U) != 0 ? Unit::kTimesAlone : Unit::kNanoseconds,
            word & ((std::uint64_t{1} << 48U) - 1), (word >> 62U & 1U) != 0};
  }
};

/// The forms that parse_target() accepts, for help and error messages.
inline constexpr std::string_view kTargetForms =
    "p99=50ms, p95=800us, p99.9=1.5s (p50 to p99.9), p99=1.2x (times alone), step p99=25ms, "
    "none";

/// Reads a target without allocating. Accepts no signs, and no space but the one after "step";
/// returns nothing for any other text. "none" is no target.
[[nodiscard]] std::optional<Target> parse_target(std::string_view text) noexcept;

/// The text that parse_target() reads back to the same target; "none" for no target.
[[nodiscard]] std::string to_string(const Target& target);

/// What is wrong with a target as a user wrote it, and what is allowed; empty if nothing is wrong.
[[nodiscard]] std::string check_target(const std::string& text);

/// "; did you mean 'p99=50ms'?" for text that nearly is a target; empty if nothing is near.
[[nodiscard]] std::string target_hint(const std::string& text, char quote = '\'');

}  // namespace sluice::shm
