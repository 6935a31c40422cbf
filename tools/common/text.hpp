#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tools {

/// `text` in exactly `width` columns of a terminal: cut, or filled with spaces at the end (`right`:
/// in front). '?' replaces what cannot be printed and what is not a character of the locale.
[[nodiscard]] std::string fit(std::string_view text, std::size_t width, bool right = false);

/// `text` without its end where it needs more than `width` columns; "..." marks the cut.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t width);

/// The number of columns that fit() needs for all of `text`.
[[nodiscard]] std::size_t columns_of(std::string_view text);

/// A duration in at most 6 characters: "850us", "12.3ms", "1.23s", "90.0m", "12.0h".
[[nodiscard]] std::string short_duration(std::uint64_t ns);

/// A duration in at most 5 characters, for values that change with every look: "12ms", "1.2s".
[[nodiscard]] std::string coarse_duration(std::uint64_t ns);

/// A number in at most 5 characters up to 1e8: "0", "0.5", "123", "12.3k", "1.2M".
[[nodiscard]] std::string short_number(double value);

/// "1 launch", "2 launches".
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view one, std::string_view many);

/// The last `width` values as a row of bars from 0 to the greatest of them. Without UTF-8 in the
/// locale the bars are ASCII characters.
[[nodiscard]] std::string sparkline(const std::vector<std::uint64_t>& values, std::size_t width);

}  // namespace sluice::tools
