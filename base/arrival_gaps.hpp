#pragma once
#include <cmath>
#include <cstdint>
#include <random>

/// Random gaps between arrivals.
namespace sluice::base {

/// Uniform in [0, 1). Not std::uniform_real_distribution, which differs between standard libraries:
/// one seed must give the same arrivals everywhere.
[[nodiscard]] inline double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11U) * 0x1p-53;
}

/// A gap of a Poisson process, in units of the mean gap.
[[nodiscard]] inline double poisson_gap(std::mt19937_64& random) {
  return -std::log1p(-uniform(random));
}

/// The gaps of the published request scheduler's client: whole milliseconds, each drawn from the
/// Poisson distribution of that mean. Their deviation is only the root of the mean, so the arrivals
/// are nearly periodic and no Poisson process.
class NearPeriodicGaps {
 public:
  /// mean_ms: greater than 0.
  NearPeriodicGaps(double mean_ms, std::uint32_t seed) : random_(seed), gap_ms_(mean_ms) {}

  [[nodiscard]] std::uint64_t next_ms() { return gap_ms_(random_); }

 private:
  std::mt19937 random_;
  std::poisson_distribution<std::uint64_t> gap_ms_;
};

}  // namespace sluice::base
