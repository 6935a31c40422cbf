#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::shm {

/// The weight that a user asks for (docs/reference/turns.md), as Slot::requested_weight has it.
inline constexpr std::uint32_t kNoWeight = 0;
inline constexpr std::uint32_t kMostWeight = 1000;
inline constexpr std::string_view kWeightForms = "none, or a whole number from 1 to 1000";

/// Nothing for a text of another form.
[[nodiscard]] std::optional<std::uint32_t> parse_weight(std::string_view text) noexcept;
[[nodiscard]] std::string weight_text(std::uint32_t weight);

/// What is wrong with a weight as a user wrote it, and what is allowed; empty if nothing is wrong.
[[nodiscard]] std::string check_weight(const std::string& text);

}  // namespace sluice::shm
