#include "tools/common/text.hpp"

#include <fmt/format.h>
#include <langinfo.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cwchar>

namespace sluice::tools {
namespace {

struct Piece {
  std::string_view bytes;
  std::size_t columns;
};

/// The first character of `text` in the user's locale.
Piece first_character(std::string_view text) {
  constexpr Piece kUnprintable{"?", 1};
  std::mbstate_t state{};
  wchar_t wide = 0;
  const std::size_t length = std::mbrtowc(&wide, text.data(), text.size(), &state);
  if (length == 0 || length > text.size()) return kUnprintable;
  const int columns = wcwidth(wide);
  if (columns < 0) return {kUnprintable.bytes, 1};
  return {text.substr(0, length), static_cast<std::size_t>(columns)};
}

/// The number of bytes of `text` that first_character() has read.
std::size_t bytes_read(std::string_view text, const Piece& piece) {
  if (piece.bytes.data() == text.data()) return piece.bytes.size();
  std::mbstate_t state{};
  const std::size_t length = std::mbrtowc(nullptr, text.data(), text.size(), &state);
  return length == 0 || length > text.size() ? 1 : length;
}

struct Unit {
  double ns;
  const char* name;
};
constexpr std::array<Unit, 5> kUnits{
    {{3600e9, "h"}, {60e9, "m"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};

/// Minutes from 600 s on, hours from 600 minutes on: more digits are better than a larger unit.
const Unit& unit_of(double ns) {
  if (ns >= 600 * 60e9) return kUnits[0];
  if (ns >= 600e9) return kUnits[1];
  if (ns >= 0.9995e9) return kUnits[2];
  return ns >= 0.9995e6 ? kUnits[3] : kUnits[4];
}

}  // namespace

std::string fit(std::string_view text, std::size_t width, bool right) {
  std::string fitted;
  std::size_t columns = 0;
  while (!text.empty()) {
    const Piece piece = first_character(text);
    if (columns + piece.columns > width) break;
    fitted += piece.bytes;
    columns += piece.columns;
    text.remove_prefix(bytes_read(text, piece));
  }
  const std::string fill(width - columns, ' ');
  return right ? fill + fitted : fitted + fill;
}

std::string shortened(std::string_view text, std::size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  const std::size_t dots = std::min<std::size_t>(width, 3);
  return fit(text, width - dots) + std::string(dots, '.');
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Piece piece = first_character(text);
    columns += piece.columns;
    text.remove_prefix(bytes_read(text, piece));
  }
  return columns;
}

std::string short_duration(std::uint64_t ns) {
  const auto exact = static_cast<double>(ns);
  const Unit& unit = unit_of(exact);
  const double value = exact / unit.ns;
  if (unit.ns < 1e6 || value >= 99.95) return fmt::format("{:.0f}{}", value, unit.name);
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : 1, unit.name);
}

std::string coarse_duration(std::uint64_t ns) {
  const auto exact = static_cast<double>(ns);
  const Unit& unit = unit_of(exact);
  const double value = exact / unit.ns;
  return fmt::format("{:.{}f}{}", value, unit.ns >= 1e6 && value < 9.95 ? 1 : 0, unit.name);
}

std::string short_number(double value) {
  if (value == std::floor(value) && value < 9999.5) return fmt::format("{:.0f}", value);
  if (value < 9.95) return fmt::format("{:.1f}", value);
  if (value < 9999.5) return fmt::format("{:.0f}", value);
  if (value < 99.95e3) return fmt::format("{:.1f}k", value / 1e3);
  if (value < 999.5e3) return fmt::format("{:.0f}k", value / 1e3);
  return fmt::format("{:.{}f}M", value / 1e6, value < 99.95e6 ? 1 : 0);
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string sparkline(const std::vector<std::uint64_t>& values, std::size_t width) {
  constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<std::string_view, 8> kAscii{"_", ".", ":", "-", "=", "+", "*", "#"};
  const auto& bars = std::string_view(nl_langinfo(CODESET)) == "UTF-8" ? kBlocks : kAscii;
  const auto first = values.end() - static_cast<std::ptrdiff_t>(std::min(width, values.size()));
  if (first == values.end()) return {};
  const double most = std::max(1.0, static_cast<double>(*std::max_element(first, values.end())));
  std::string line;
  for (auto value = first; value != values.end(); ++value) {
    line += bars[static_cast<std::size_t>(static_cast<double>(*value) / most * 7)];
  }
  return line;
}

}  // namespace sluice::tools
