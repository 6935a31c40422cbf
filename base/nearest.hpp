#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

/// Number of insertions, deletions, replacements and swaps of neighbours between two words
/// (restricted Damerau-Levenshtein distance), upper and lower case being the same letter.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word that `word` was probably meant to be, or an empty string if none is near
/// (more than a third of the longer word differs).
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace sluice::base
