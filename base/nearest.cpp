#include "base/nearest.hpp"

#include <algorithm>
#include <cctype>

namespace sluice::base {
namespace {

/// "exp_duration" and "exp_dur", but not "e" and "exec".
bool one_begins_the_other(std::string_view a, std::string_view b) {
  constexpr std::size_t kLeast = 4;
  return std::min(a.size(), b.size()) >= kLeast && (a.starts_with(b) || b.starts_with(a));
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the dynamic-programming table, because a swap refers to the row before the last.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0U : 1U)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  // The time grows with the product of the lengths, and a client may send any word.
  constexpr std::size_t kLongest = 256;
  if (word.size() > kLongest) return {};
  std::string best;
  std::size_t best_distance = word.size();
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    const std::size_t limit = std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    const bool near = distance <= limit || one_begins_the_other(word, candidate);
    if (near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known, char quote) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? "" : std::string(", did you mean ") + quote + meant + quote + "?";
}

std::string with_remark(const std::string& line, std::string remark) {
  if (!line.ends_with('?')) return line + "; " + remark;
  remark.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(remark.front())));
  return line + " " + remark;
}

}  // namespace sluice::base
