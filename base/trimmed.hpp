#pragma once
#include <string_view>

namespace sluice::base {

/// The part of `text` without the blanks at both ends, of which the '\r' of a line from Windows is
/// one.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace sluice::base
