#pragma once
#include <string>
#include <string_view>

/// Names of sessions.
namespace sluice::base {

inline constexpr std::string_view kDefaultSession = "default";

/// Whether `name` is a valid session name: 1 to 32 of A-Z a-z 0-9 _ - and inner dots.
[[nodiscard]] bool valid_session_name(std::string_view name) noexcept;

}  // namespace sluice::base
