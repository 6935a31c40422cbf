#include "shm/target.hpp"

#include <array>
#include <cmath>

namespace sluice::shm {
namespace {

constexpr std::string_view kOfSteps = "step ";

struct Unit {
  std::string_view name;
  std::uint64_t ns;  ///< 0: times alone.
};
constexpr std::array<Unit, 4> kUnits{
    {{"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"x", 0}}};

/// The number at the front of `text`, which it removes. No sign, no exponent. Not
/// std::from_chars(): for floating point that brings a static constructor of libstdc++ into the
/// interposer.
std::optional<double> take_number(std::string_view& text) noexcept {
  constexpr std::size_t kMostDigits = 15;  // a double has them all
  double digits = 0;
  double scale = 0;  // 0: no point yet
  std::size_t count = 0;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c == '.' && scale == 0 && count != 0) {
      scale = 1;
    } else if (c >= '0' && c <= '9' && ++count <= kMostDigits) {
      digits = digits * 10 + (c - '0');
      scale *= 10;
    } else {
      break;
    }
  }
  const bool ends_with_point = scale == 1;
  if (count == 0 || count > kMostDigits || ends_with_point) return std::nullopt;
  return scale == 0 ? digits : digits / scale;
}

/// `value` in the fewest digits, at most three behind the point.
std::string shortest(std::uint64_t thousandths) {
  std::string text = std::to_string(thousandths / 1000);
  std::uint64_t rest = thousandths % 1000;
  if (rest == 0) return text;
  text += '.';
  for (std::uint64_t digit = 100; rest != 0; digit /= 10) {
    text += static_cast<char>('0' + rest / digit);
    rest %= digit;
  }
  return text;
}

}  // namespace

std::optional<Target> parse_target(std::string_view text) noexcept {
  if (text == "none") return Target{};
  const bool of_steps = text.starts_with(kOfSteps);
  if (of_steps) text.remove_prefix(kOfSteps.size());
  if (!text.starts_with('p')) return std::nullopt;
  text.remove_prefix(1);
  const std::optional<double> percentile = take_number(text);
  if (!percentile || !text.starts_with('=')) return std::nullopt;
  text.remove_prefix(1);
  const std::optional<double> limit = take_number(text);
  if (!limit || *percentile > 100) return std::nullopt;
  const double per_mille = *percentile * 10;
  if (std::abs(per_mille - std::round(per_mille)) > 1e-6) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (text != unit.name) continue;
    Target target;
    target.per_mille = static_cast<std::uint32_t>(std::lround(per_mille));
    target.unit = unit.ns == 0 ? Target::Unit::kTimesAlone : Target::Unit::kNanoseconds;
    const double scale = unit.ns == 0 ? 1000 : static_cast<double>(unit.ns);
    constexpr double kMost = 1e18;  // beyond all that is valid, and no overflow
    if (*limit * scale > kMost) return std::nullopt;
    target.limit = static_cast<std::uint64_t>(std::llround(*limit * scale));
    target.of_steps = of_steps;
    if (target.any() && target.valid()) return target;
  }
  return std::nullopt;
}

std::string to_string(const Target& target) {
  if (!target.any()) return "none";
  std::string text(target.of_steps ? kOfSteps : std::string_view());
  text += "p" + shortest(std::uint64_t{target.per_mille} * 100) + "=";
  if (target.is_relative()) return text + shortest(target.limit) + "x";
  // The largest unit in which three digits behind the point are enough.
  for (std::size_t i = 3; i-- > 0;) {
    const std::uint64_t thousandth = kUnits[i].ns / 1000;
    if (target.limit >= kUnits[i].ns && target.limit % thousandth == 0) {
      return text + shortest(target.limit / thousandth) + std::string(kUnits[i].name);
    }
  }
  return text + shortest(target.limit) + "us";
}

std::string check_target(const std::string& text) {
  if (parse_target(text)) return {};
  return "'" + text + "' is not a target: " + std::string(kTargetForms) + target_hint(text);
}

std::string target_hint(const std::string& text, char quote) {
  // Users forget the unit or the percentile.
  for (const std::string& meant : {text + "ms", "p99=" + text, "p99=" + text + "ms", "p" + text}) {
    if (parse_target(meant)) return std::string("; did you mean ") + quote + meant + quote + "?";
  }
  return {};
}

}  // namespace sluice::shm
