#include "server/figures/histogram.hpp"

namespace sluice::server {

void Histogram::write(base::MetricsText& out, const base::MetricsText::Labels& labels) const {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    auto with_bound = labels;
    with_bound.emplace_back("le",
                            i < bounds_.size() ? base::MetricsText::number(bounds_[i]) : "+Inf");
    out.sample("_bucket", with_bound, static_cast<double>(below));
  }
  out.sample("_sum", labels, sum_);
  out.sample("_count", labels, static_cast<double>(count_));
}

std::vector<double> second_bounds() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
          0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
}

std::vector<double> power_bounds(std::size_t max) {
  std::vector<double> bounds;
  for (std::size_t bound = 1; bounds.empty() || bounds.back() < static_cast<double>(max);
       bound *= 2)
    bounds.push_back(static_cast<double>(bound));
  return bounds;
}

}  // namespace sluice::server
