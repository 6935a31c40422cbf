#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

/// Number of insertions, deletions, replacements and swaps of neighbouring letters between two
/// words (restricted Damerau-Levenshtein distance). Ignores case.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word that `word` was probably meant to be. Empty if more than a third of the longer
/// word differs from every known word.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace sluice::base
