#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::tools {

/// `text` in exactly `width` columns of a terminal: cut, or filled with spaces behind it (before
/// it with `right`). What cannot be printed, or is no character of the locale, becomes '?'.
[[nodiscard]] std::string fit(std::string_view text, std::size_t width, bool right = false);

/// Columns that fit() gives `text` if there are enough.
[[nodiscard]] std::size_t columns_of(std::string_view text);

/// A duration in at most 6 characters: "850us", "12.3ms", "1.23s", "90.0m", "12.0h".
[[nodiscard]] std::string short_duration(std::uint64_t ns);

/// The same in at most 5, for one that changes with every look: "12ms", "1.2s".
[[nodiscard]] std::string coarse_duration(std::uint64_t ns);

/// A number in at most 5 characters: "0", "0.5", "123", "12.3k", "1.2M".
[[nodiscard]] std::string short_number(double value);

}  // namespace sluice::tools
