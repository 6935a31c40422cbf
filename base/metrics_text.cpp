#include "base/metrics_text.hpp"

#include <fmt/format.h>

namespace sluice::base {
namespace {

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

std::string MetricsText::number(double value) { return fmt::format("{}", value); }

void MetricsText::sample(std::string_view suffix, const Labels& labels, double value) {
  text_ += name_;
  text_ += suffix;
  char separator = '{';
  for (const auto& [name, content] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", separator, name, escaped(content));
    separator = ',';
  }
  if (!labels.empty()) text_ += '}';
  text_ += " " + number(value) + "\n";
}

}  // namespace sluice::base
