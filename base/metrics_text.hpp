#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::base {

/// Writes the Prometheus text format, version 0.0.4: the head of a family, then all its samples.
class MetricsText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  void family(std::string_view name, std::string_view type, std::string_view help);
  /// A sample of the last family. Label values are escaped here.
  void sample(const Labels& labels, double value) { sample("", labels, value); }
  void sample(double value) { sample("", {}, value); }
  /// A part of a histogram: the suffix follows the family's name.
  void sample(std::string_view suffix, const Labels& labels, double value);

  /// A number as the format writes it, for the value of a label.
  [[nodiscard]] static std::string number(double value);

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
};

}  // namespace sluice::base
