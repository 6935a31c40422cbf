#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

/// Number of insertions, deletions, replacements and swaps of neighbouring letters between two
/// words (restricted Damerau-Levenshtein distance). Ignores case.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word that `word` was probably meant to be, or an empty string if none is near: more
/// than a third of the longer word differs, and neither begins with the other.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// `, did you mean 'status'?` with nearest(), or an empty string.
[[nodiscard]] std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                                       char quote = '\'');

/// `line` and one remark more: after a question a sentence of its own, else behind a semicolon.
[[nodiscard]] std::string with_remark(const std::string& line, std::string remark);

}  // namespace sluice::base
