#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::scheduler {

/// The order of requests, and whether a model runs whole or in blocks. docs/reference/scheduler.md
/// describes each policy.
enum class Policy : std::uint8_t { kFifo, kBnst, kOyst, kDlir, kParaller, kEdf };

inline constexpr std::array kPolicies{Policy::kFifo, Policy::kBnst,     Policy::kOyst,
                                      Policy::kDlir, Policy::kParaller, Policy::kEdf};

/// Which request runs next.
enum class Order : std::uint8_t {
  kArrival,
  kSmith,      ///< Each request overtakes those before it by Smith's rule when it arrives.
  kPlan,       ///< Planned anew before each step, by deadlines.
  kSideBySide  ///< All of them, as many of a model as it has instances.
};

/// When a model runs in blocks, between which other requests may run.
enum class Split : std::uint8_t { kNever, kAlways, kElastic, kForNewcomers };

/// What a policy does. A new one answers each of these, and no other code compares policies.
struct Traits {
  std::string_view name;  ///< As users write it.
  Order order;
  Split split;

  /// A request that waits is expected to run in blocks.
  [[nodiscard]] constexpr bool expects_blocks() const {
    return split == Split::kAlways || split == Split::kElastic;
  }
};

[[nodiscard]] constexpr Traits traits_of(Policy policy) {
  switch (policy) {
    case Policy::kFifo:
      return {"FIFO", Order::kArrival, Split::kNever};
    case Policy::kBnst:
      return {"BNST", Order::kSmith, Split::kNever};
    case Policy::kOyst:
      return {"OYST", Order::kSmith, Split::kAlways};
    case Policy::kDlir:
      return {"DLIR", Order::kSmith, Split::kElastic};
    case Policy::kParaller:
      return {"PARALLER", Order::kSideBySide, Split::kNever};
    case Policy::kEdf:
      return {"EDF", Order::kPlan, Split::kForNewcomers};
  }
  return {"?", Order::kArrival, Split::kNever};
}
static_assert(traits_of(Policy{kPolicies.size()}).name == "?", "kPolicies has them all");

/// The name that users write: "FIFO", "BNST", "OYST", "DLIR", "PARALLER" or "EDF".
[[nodiscard]] constexpr std::string_view to_string(Policy policy) { return traits_of(policy).name; }

/// The policy of a name in any case. Nothing for an unknown name.
[[nodiscard]] std::optional<Policy> parse_policy(std::string_view name);

}  // namespace sluice::scheduler
