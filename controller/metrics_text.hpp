#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::controller {

/// Writes the Prometheus text format, version 0.0.4: a family's head, then all of its samples.
class MetricsText {
 public:
  using Label = std::pair<std::string_view, std::string_view>;

  void family(std::string_view name, std::string_view type, std::string_view help);
  /// A sample of the family begun last. Label values are escaped here.
  void sample(std::initializer_list<Label> labels, double value);
  void sample(double value) { sample({}, value); }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
};

}  // namespace sluice::controller
