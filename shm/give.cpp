#include "shm/give.hpp"

#include <charconv>

namespace sluice::shm {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<std::uint32_t> parse_give(std::string_view text) noexcept {
  if (text == "0") return 0;
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  std::uint32_t tenth = 0;
  if (text.size() >= 2 && text[text.size() - 2] == '.') {
    if (!is_digit(text.back())) return std::nullopt;
    tenth = static_cast<std::uint32_t>(text.back() - '0');
    text.remove_suffix(2);
  }
  std::uint32_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error != std::errc{} || end != text.data() + text.size() || whole > kMostGive / 10) {
    return std::nullopt;
  }
  const std::uint32_t per_mille = whole * 10 + tenth;
  return per_mille <= kMostGive ? std::optional(per_mille) : std::nullopt;
}

std::string give_text(std::uint32_t per_mille) {
  if (per_mille == 0) return "0";
  const std::uint32_t tenth = per_mille % 10;
  return std::to_string(per_mille / 10) + (tenth == 0 ? "" : "." + std::to_string(tenth)) + "%";
}

std::string check_give(const std::string& text) {
  if (parse_give(text)) return {};
  return "'" + text + "' is not a share of its time: " + std::string(kGiveForms) + give_hint(text);
}

std::string give_hint(const std::string& text, char quote) {
  // Users forget the sign, or put a space in front of it.
  std::string meant = text.substr(0, text.find_last_not_of(" %") + 1) + "%";
  return parse_give(meant) ? std::string("; did you mean ") + quote + meant + quote + "?" : "";
}

}  // namespace sluice::shm
