#include "predictor/source/references.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace sluice::predictor {
namespace {

/// 4 of "float4".
std::int64_t width_of(std::string_view type) {
  const char last = type.empty() ? ' ' : type.back();
  return last >= '2' && last <= '8' ? last - '0' : 1;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The end of a number that begins at `at`, also of 0x1p-3f and 1e-5f.
std::size_t number_end(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (is_name(text[at]) || text[at] == '.' ||
          ((text[at] == '-' || text[at] == '+') && (text[at - 1] == 'p' || text[at - 1] == 'e')))) {
    ++at;
  }
  return at;
}

void count_call(std::string_view called, Arithmetic& rest) {
  if (called == "max" || called == "min") {
    rest.extremes += 1;
  } else if (called.starts_with("__shfl")) {
    rest.shuffles += 1;
  } else if (called.ends_with('f') || called.starts_with("exp") || called.starts_with("__exp")) {
    rest.functions += 1;
  }
}

/// A sign or the star of a type has no space on both sides, and the operators of components have
/// none at all: "a.x+b.x".
void count_operator(std::string_view text, std::size_t at, Arithmetic& rest) {
  if (at == 0 || at + 1 >= text.size()) return;
  const bool spaced = text[at - 1] == ' ' && text[at + 1] == ' ';
  const bool of_components = is_name(text[at - 1]) && is_name(text[at + 1]);
  if (!spaced && !of_components) return;
  if (text[at] == '*') rest.multiplications += 1;
  if (text[at] == '+' || text[at] == '-') rest.additions += 1;
  if (text[at] == '/') rest.divisions += 1;
}

/// "*(float4*)(NAME + INDEX)" at `at`, which moves behind it. False if there is none.
bool take_vector(std::string_view text, std::size_t& at, std::vector<Reference>& found) {
  if (!text.substr(at).starts_with("*(") || at + 2 >= text.size() || !is_name(text[at + 2])) {
    return false;
  }
  const std::size_t star = text.find("*)(", at);
  const std::size_t plus = text.find(" + ", at);
  if (star == std::string_view::npos || plus == std::string_view::npos) return false;
  const std::string_view type = text.substr(at + 2, star - at - 2);
  if (!std::ranges::all_of(type, is_name)) return false;
  const std::size_t close = counterpart(text, star + 2);
  found.push_back({text.substr(star + 3, plus - star - 3), text.substr(plus + 3, close - plus - 3),
                   width_of(type)});
  at = close + 1;
  return true;
}

}  // namespace

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The end of what the bracket at `open` encloses: the place of its counterpart.
std::size_t counterpart(std::string_view text, std::size_t open) {
  const char opens = text[open];
  const char closes = opens == '[' ? ']' : ')';
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == opens) ++depth;
    if (text[i] == closes && --depth == 0) return i;
  }
  return text.size();
}

double to_number(std::string_view digits) {
  double number = 0;
  if (digits.empty() || !is_digit(digits[0])) return 0;  // also "inf"
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return std::min(number, 1e12);
}

std::vector<Reference> references(std::string_view text,
                                  const std::function<bool(std::string_view)>& is_array,
                                  Arithmetic& rest) {
  std::vector<Reference> found;
  std::size_t at = 0;
  while (at < text.size()) {
    if (take_vector(text, at, found)) continue;
    if (is_digit(text[at])) {
      at = number_end(text, at);
      continue;
    }
    if (!is_name(text[at])) {
      count_operator(text, at++, rest);
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && (is_name(text[at]) || text[at] == '.')) ++at;
    const std::string_view name = text.substr(begin, at - begin);
    if (at >= text.size()) break;
    if (text[at] == '(') count_call(name, rest);
    if (text[at] != '[') continue;
    const std::size_t close = counterpart(text, at);
    const std::string_view index = text.substr(at + 1, close - at - 1);
    Arithmetic ignored;
    for (const Reference& inner : references(index, is_array, ignored)) found.push_back(inner);
    if (is_array(name)) found.push_back({name, index, 1});
    at = close + 1;
  }
  return found;
}

}  // namespace sluice::predictor
