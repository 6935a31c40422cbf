#include "predictor/math/features.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::predictor {
namespace {

/// A program that is unlike all training programs must not dominate the network.
constexpr float kMost = 2.0F;

std::array<double, kFeatures> periods() {
  std::array<double, kFeatures> found{};
  for (std::size_t i = 0; i < kFeatures; ++i) {
    found[i] = std::pow(10000.0, static_cast<double>(i) / static_cast<double>(kFeatures));
  }
  return found;
}

}  // namespace

FeatureScale::FeatureScale(const Dataset& data, std::span<const Query> queries)
    : low_(kFeatures, std::numeric_limits<float>::max()),
      high_(kFeatures, std::numeric_limits<float>::lowest()) {
  for (const Query& query : queries) {
    for (const Leaf& leaf : data.programs[query.program].leaves) {
      for (std::size_t f = 0; f < kFeatures; ++f) {
        low_[f] = std::min(low_[f], leaf[f]);
        high_[f] = std::max(high_[f], leaf[f]);
      }
    }
  }
}

Leaf FeatureScale::apply(const Leaf& leaf) const {
  Leaf scaled{};
  for (std::size_t f = 0; f < kFeatures; ++f) {
    const float range = high_[f] - low_[f];
    if (range > 0) scaled[f] = std::clamp((leaf[f] - low_[f]) / range, 1 - kMost, kMost);
  }
  return scaled;
}

Leaf sinusoid(std::int32_t position) {
  static const std::array<double, kFeatures> kPeriods = periods();
  Leaf wave{};
  for (std::size_t i = 0; i < kFeatures; ++i) {
    const double angle = position / kPeriods[i];
    wave[i] = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
  }
  return wave;
}

std::vector<Leaf> encode(const Program& program, const FeatureScale& scale, bool positions) {
  std::vector<Leaf> encoded;
  for (std::size_t l = 0; l < program.leaves.size(); ++l) {
    Leaf leaf = scale.apply(program.leaves[l]);
    if (positions) {
      const Leaf wave = sinusoid(program.positions[l]);
      for (std::size_t f = 0; f < kFeatures; ++f) leaf[f] += wave[f];
    }
    encoded.push_back(leaf);
  }
  return encoded;
}

std::vector<std::vector<double>> task_means(const Dataset& data, const FeatureScale& scale,
                                            std::span<const std::size_t> tasks) {
  std::vector<std::vector<double>> sums(data.tasks.size(), std::vector<double>(kFeatures, 0.0));
  std::vector<double> counts(data.tasks.size(), 0.0);
  for (const Program& program : data.programs) {
    for (const Leaf& leaf : encode(program, scale, false)) {
      counts[program.task] += 1;
      for (std::size_t f = 0; f < kFeatures; ++f) sums[program.task][f] += leaf[f];
    }
  }
  std::vector<std::vector<double>> means;
  for (const std::size_t task : tasks) {
    for (double& x : sums[task]) x /= std::max(counts[task], 1.0);
    means.push_back(sums[task]);
  }
  return means;
}

}  // namespace sluice::predictor
