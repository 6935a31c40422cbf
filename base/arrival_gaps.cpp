#include "base/arrival_gaps.hpp"

#include <cmath>

namespace sluice::base {

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11U) * 0x1p-53; }

double poisson_gap(std::mt19937_64& random) { return -std::log1p(-uniform(random)); }

}  // namespace sluice::base
