#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::shm {

/// How much longer, averaged over a minute, the jobs and steps of a critical client may take for
/// those below it (docs/reference/give.md), in 1/1000 of their time. 0: nothing, so its gates close
/// at the first launch.
inline constexpr std::uint32_t kDefaultGive = 50;
inline constexpr std::uint32_t kMostGive = 500;
inline constexpr std::string_view kGiveForms = "0, or a percentage from 0.1% to 50% such as 5%";

/// As Slot::requested_give has it. 0 is a client that says nothing.
[[nodiscard]] constexpr std::uint32_t pack_give(std::uint32_t per_mille) noexcept {
  return 1 + per_mille;
}
[[nodiscard]] constexpr std::uint32_t unpack_give(std::uint32_t word) noexcept {
  return word == 0 ? kDefaultGive : std::min(word - 1, kMostGive);
}

/// As a message has it. Nothing if the sender says nothing, or does not know the field.
[[nodiscard]] constexpr std::uint16_t say_give(std::uint32_t per_mille) noexcept {
  return static_cast<std::uint16_t>(0x8000U | per_mille);
}
[[nodiscard]] constexpr std::optional<std::uint32_t> said_give(std::uint16_t field) noexcept {
  return (field & 0x8000U) != 0 ? std::optional<std::uint32_t>(field & 0x7fffU) : std::nullopt;
}

/// Nothing for a text of another form. Does not allocate.
[[nodiscard]] std::optional<std::uint32_t> parse_give(std::string_view text) noexcept;
/// The text that parse_give() reads back: "5%", "2.5%", "0".
[[nodiscard]] std::string give_text(std::uint32_t per_mille);

/// What is wrong with it as a user wrote it, and what is allowed; empty if nothing is wrong.
[[nodiscard]] std::string check_give(const std::string& text);

/// "; did you mean '5%'?" for text that nearly is one; empty if nothing is near.
[[nodiscard]] std::string give_hint(const std::string& text, char quote = '\'');

}  // namespace sluice::shm
