#include "shm/memory_limit.hpp"

#include <array>

namespace sluice::shm {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
/// The greatest first.
constexpr std::array<Unit, 8> kUnits{{{"TiB", std::uint64_t{1} << 40U},
                                      {"TB", 1'000'000'000'000},
                                      {"GiB", 1U << 30U},
                                      {"GB", 1'000'000'000},
                                      {"MiB", 1U << 20U},
                                      {"MB", 1'000'000},
                                      {"KiB", 1U << 10U},
                                      {"kB", 1'000}}};

std::uint64_t unit_named(std::string_view name) noexcept {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit.bytes;
  }
  return 0;
}

/// The number in front of the unit in thousandths, which it removes. Not std::from_chars(): for
/// floating point that brings a static constructor of libstdc++ into the interposer.
std::optional<std::uint64_t> take_thousandths(std::string_view& text) noexcept {
  constexpr std::uint64_t kMost =
      1'000'000'000'000;  // times the greatest unit would overflow later
  std::uint64_t number = 0;
  int behind = -1;  // digits behind the point; -1: no point yet
  bool digit = false;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c == '.' && behind < 0 && digit) {
      behind = 0;
      digit = false;
    } else if (c >= '0' && c <= '9') {
      digit = true;
      number = number * 10 + static_cast<std::uint64_t>(c - '0');
      if (behind >= 0 && ++behind > 3) return std::nullopt;
      if (number > kMost) return std::nullopt;
    } else {
      break;
    }
  }
  if (!digit) return std::nullopt;
  for (int i = behind < 0 ? 0 : behind; i < 3; ++i) number *= 10;
  return number;
}

/// Any size, also one that is no limit.
std::optional<std::uint64_t> size_in(std::string_view text) noexcept {
  const auto thousandths = take_thousandths(text);
  const std::uint64_t unit = unit_named(text);
  if (!thousandths || unit == 0) return std::nullopt;
  const std::uint64_t whole = *thousandths / 1000;
  if (whole > kMostMemoryLimit / unit) return ~std::uint64_t{0};  // above every limit
  return whole * unit + *thousandths % 1000 * unit / 1000;
}

}  // namespace

std::optional<std::uint64_t> parse_memory_limit(std::string_view text) noexcept {
  if (text == "none") return 0;
  const auto bytes = size_in(text);
  return bytes && *bytes != 0 && valid_memory_limit(*bytes) ? bytes : std::nullopt;
}

std::string memory_limit_text(std::uint64_t bytes) {
  if (bytes == 0) return "none";
  for (const Unit& unit : kUnits) {
    if (bytes % unit.bytes == 0) return std::to_string(bytes / unit.bytes) + std::string(unit.name);
  }
  return std::to_string(bytes) + "B";
}

std::string check_memory_limit(const std::string& text) {
  if (parse_memory_limit(text)) return {};
  const std::string range = "a limit is 1GiB to 16TiB";
  std::string_view rest = text;
  if (take_thousandths(rest) && rest.empty()) {
    return "'" + text + "' has no unit: write " + (text == "0" ? "none" : text + "GiB") + "; " +
           range;
  }
  const auto bytes = size_in(text);
  if (!bytes) return "'" + text + "' is not one of " + std::string(kMemoryLimitForms);
  if (*bytes > kMostMemoryLimit) return "'" + text + "' is above every GPU: " + range;
  return "'" + text + "' is too little: " + range +
         " (the context of a program, which does not count, needs up to 0.82 GB more)";
}

}  // namespace sluice::shm
