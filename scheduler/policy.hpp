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

/// The name that users write: "FIFO", "BNST", "OYST", "DLIR", "PARALLER" or "EDF".
[[nodiscard]] std::string_view to_string(Policy policy);

/// The policy of a name in any case. Nothing for an unknown name.
[[nodiscard]] std::optional<Policy> parse_policy(std::string_view name);

}  // namespace sluice::scheduler
