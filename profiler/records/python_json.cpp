#include "profiler/records/python_json.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace sluice::profiler {
namespace {

using nlohmann::ordered_json;

/// Python's repr() of a float: fixed from 1e-4 to below 1e16, else with an exponent.
std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string out(text.data(), end);
  if (fixed && out.find('.') == std::string::npos) out += ".0";
  return out;
}

void append(std::string& out, const ordered_json& value) {
  if (value.is_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!first) out += ", ";
      first = false;
      out += ordered_json(key).dump() + ": ";
      append(out, member);
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const ordered_json& element : value) {
      if (!first) out += ", ";
      first = false;
      append(out, element);
    }
    out += ']';
  } else if (value.is_number_float()) {
    out += python_float(value);
  } else {
    out += value.dump();
  }
}

}  // namespace

std::string python_json(const ordered_json& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace sluice::profiler
