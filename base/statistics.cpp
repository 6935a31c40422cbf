#include "base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace sluice::base {

double percentile(std::vector<double> sample, double p) {
  if (sample.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(sample.begin(), sample.end());
  const double rank = std::clamp(p, 0.0, 1.0) * static_cast<double>(sample.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sample.size() - 1);
  return std::lerp(sample[below], sample[above], rank - static_cast<double>(below));
}

double mean(const std::vector<double>& sample) {
  if (sample.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size());
}

}  // namespace sluice::base
