#pragma once
#include <cstddef>
#include <vector>

namespace sluice::base {

/// The value below which the fraction `p` (0 to 1) of the sample lies. Interpolates linearly
/// between the two nearest ranks, as numpy does by default. NaN for an empty sample.
[[nodiscard]] double percentile(std::vector<double> sample, double p);

/// NaN for an empty sample.
[[nodiscard]] double mean(const std::vector<double>& sample);

}  // namespace sluice::base
