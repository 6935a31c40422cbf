#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::shm {

/// What a client does with its own launches while a higher-priority client may be active.
enum class PolicyKind : std::uint8_t { kNone, kGate, kSync, kEvent, kDevice };
inline constexpr std::size_t kPolicyKinds = 5;

/// What stands between two groups of launches, or two launches, of one stream.
enum class Between : std::uint8_t { kNothing, kSyncPoint, kEventGroup, kDeviceWait };

/// What a kind of policy does. A new kind answers each of these, and no other code compares kinds.
struct PolicyTraits {
  std::string_view name;  ///< As users write it.
  bool heeds_gate;        ///< A closed gate holds its launches: on the host, or on the device.
  Between between;        ///< kNothing: the policy has no spacing.
  bool spaces_by_time;    ///< Its spacing may be GPU time.
};

/// A board of a later build may have a kind that this one does not know.
[[nodiscard]] constexpr PolicyTraits traits_of(PolicyKind kind) noexcept {
  switch (kind) {
    case PolicyKind::kNone:
      return {"none", false, Between::kNothing, false};
    case PolicyKind::kGate:
      return {"gate", true, Between::kNothing, false};
    case PolicyKind::kSync:
      return {"sync", true, Between::kSyncPoint, false};
    case PolicyKind::kEvent:
      return {"event", true, Between::kEventGroup, false};
    case PolicyKind::kDevice:
      return {"device", true, Between::kDeviceWait, true};
  }
  return {"unknown", true, Between::kNothing, false};
}
static_assert(traits_of(PolicyKind{kPolicyKinds}).name == "unknown",
              "kPolicyKinds counts them all");

/// The distance between two sync points, two event groups or two device waits of one stream.
struct Spacing {
  enum class Unit : std::uint8_t { kLaunches, kMicroseconds };  ///< Microseconds are GPU time.

  std::uint32_t count = 0;  ///< 1 to kMax; 0 for a policy without a spacing.
  Unit unit = Unit::kLaunches;

  static constexpr std::uint32_t kMax = 1'000'000;

  [[nodiscard]] static constexpr Spacing launches(std::uint32_t count) noexcept {
    return {count, Unit::kLaunches};
  }
  [[nodiscard]] static constexpr Spacing microseconds(std::uint32_t count) noexcept {
    return {count, Unit::kMicroseconds};
  }

  [[nodiscard]] constexpr bool is_time() const noexcept { return unit == Unit::kMicroseconds; }
  /// A spacing in microseconds, as GPU time in ns.
  [[nodiscard]] constexpr std::uint64_t ns() const noexcept { return std::uint64_t{count} * 1000; }

  friend bool operator==(const Spacing&, const Spacing&) = default;
};

/// A policy as users write it: `none`, `gate`, `sync:N`, `event:N` and `device:N` with N launches,
/// or `device:Tus` with T microseconds of GPU time, alone or as `device:Tus,ahead:Ams`.
struct Policy {
  PolicyKind kind = PolicyKind::kNone;
  Spacing spacing{};
  /// The host waits while more than this many microseconds of GPU time are queued; 0: no bound. For
  /// a spacing in microseconds only.
  std::uint32_t ahead_us = 0;

  static constexpr std::uint32_t kMaxAheadUs = 1'000'000;

  friend bool operator==(const Policy&, const Policy&) = default;

  /// Whether parse_policy() can return this policy. A policy from a board or a message may be
  /// invalid.
  [[nodiscard]] constexpr bool valid() const noexcept {
    if (ahead_us != 0 && (!spacing.is_time() || ahead_us > kMaxAheadUs)) return false;
    if (static_cast<std::size_t>(kind) >= kPolicyKinds) return false;
    if (!is_spaced()) return spacing == Spacing{};
    if (spacing.is_time() && !traits_of(kind).spaces_by_time) return false;
    return spacing.count >= 1 && spacing.count <= Spacing::kMax;
  }

  [[nodiscard]] constexpr Between between() const noexcept { return traits_of(kind).between; }
  [[nodiscard]] constexpr bool heeds_gate() const noexcept { return traits_of(kind).heeds_gate; }
  [[nodiscard]] constexpr bool is_spaced() const noexcept { return between() != Between::kNothing; }
  /// The GPU stops at the gate, so that the host may launch on.
  [[nodiscard]] constexpr bool waits_on_device() const noexcept {
    return between() == Between::kDeviceWait;
  }
  /// The host stops at the gate.
  [[nodiscard]] constexpr bool holds_on_host() const noexcept {
    return heeds_gate() && !waits_on_device();
  }

  [[nodiscard]] constexpr std::uint64_t ahead_ns() const noexcept {
    return std::uint64_t{ahead_us} * 1000;
  }

  /// One word for the board: the spacing's count in bits 0-31, the kind in bits 32-39, bit 40 set
  /// for a spacing in microseconds, and ahead_us in bits 41-63.
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return (std::uint64_t{ahead_us} << 41U) | (std::uint64_t{spacing.is_time()} << 40U) |
           (static_cast<std::uint64_t>(kind) << 32U) | spacing.count;
  }
  [[nodiscard]] static constexpr Policy unpack(std::uint64_t word) noexcept {
    const auto count = static_cast<std::uint32_t>(word);
    return {static_cast<PolicyKind>((word >> 32U) & 0xffU),
            ((word >> 40U) & 1U) != 0 ? Spacing::microseconds(count) : Spacing::launches(count),
            static_cast<std::uint32_t>(word >> 41U)};
  }
};

/// The policy of a client that names none.
inline constexpr Policy kDefaultPolicy{PolicyKind::kDevice, Spacing::microseconds(200)};

/// The forms that parse_policy() accepts, for help and error messages.
inline constexpr std::string_view kPolicyForms =
    "none, gate, sync:N, event:N, device:N, device:Tus, device:Tus,ahead:Ams (N and T 1-1000000, A "
    "1-1000)";

/// Reads a policy without allocating. Accepts no spaces, no signs and no missing N, T or A; returns
/// nothing for any other text. `ahead` takes `us` too.
[[nodiscard]] std::optional<Policy> parse_policy(std::string_view text) noexcept;

/// The text that parse_policy() reads back to the same policy.
[[nodiscard]] std::string to_string(const Policy& policy);

}  // namespace sluice::shm
