#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/metrics_text.hpp"

namespace sluice::server {

/// Counts of values by upper bounds, as Prometheus wants them. Not thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void add(double value) {
    std::size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    ++counts_[i];
    sum_ += value;
    ++count_;
  }
  /// The samples of the family that was begun last.
  void write(base::MetricsText& out, const base::MetricsText::Labels& labels) const;
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
  std::uint64_t count_ = 0;
};

/// Bounds for times in seconds: 0.1 ms to 10 s.
[[nodiscard]] std::vector<double> second_bounds();
/// 1, 2, 4, ... to at least `max`.
[[nodiscard]] std::vector<double> power_bounds(std::size_t max);

}  // namespace sluice::server
