#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::shm {

/// What a client does with its own launches while a higher-priority client may be active.
enum class PolicyKind : std::uint8_t { kNone, kGate, kSync, kEvent, kDevice };

/// A policy as users write it: `none`, `gate`, `sync:N`, `event:N`, `device:N`, with N the number
/// of launches of one stream between two sync points, in one event group, or between two waits;
/// or `device:Tus`, with T the GPU time between two waits.
struct Policy {
  PolicyKind kind = PolicyKind::kNone;
  std::uint32_t n = 0;   ///< 1 to kMaxN for sync, event and device; 0 otherwise.
  bool in_time = false;  ///< n is microseconds of the GPU's time; for device only.

  static constexpr std::uint32_t kMaxN = 1'000'000;

  /// Of a policy in time: GPU time between two waits.
  [[nodiscard]] constexpr std::uint64_t time_ns() const noexcept { return std::uint64_t{n} * 1000; }

  friend bool operator==(const Policy&, const Policy&) = default;

  /// Whether parse_policy() could have made it: what is read from a board or a message may not be.
  [[nodiscard]] constexpr bool valid() const noexcept {
    if (kind == PolicyKind::kNone || kind == PolicyKind::kGate) return n == 0 && !in_time;
    if (in_time && kind != PolicyKind::kDevice) return false;
    return kind <= PolicyKind::kDevice && n >= 1 && n <= kMaxN;
  }

  /// One word for the board: in_time in bit 40, kind in bits 32-39, n in bits 0-31.
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return (std::uint64_t{in_time} << 40U) | (static_cast<std::uint64_t>(kind) << 32U) | n;
  }
  [[nodiscard]] static constexpr Policy unpack(std::uint64_t word) noexcept {
    return {static_cast<PolicyKind>((word >> 32U) & 0xffU), static_cast<std::uint32_t>(word),
            ((word >> 40U) & 1U) != 0};
  }
};

/// The policy of a client that names none.
inline constexpr Policy kDefaultPolicy{PolicyKind::kDevice, 200, true};

/// What parse_policy() accepts, for help and error messages.
inline constexpr std::string_view kPolicyForms =
    "none, gate, sync:N, event:N, device:N, device:Tus (N and T 1-1000000)";

/// Allocation-free and exact: no spaces, no signs, no default N. Nothing for anything else.
[[nodiscard]] std::optional<Policy> parse_policy(std::string_view text) noexcept;

/// The text that parse_policy() reads back to the same policy.
[[nodiscard]] std::string to_string(const Policy& policy);

}  // namespace sluice::shm
