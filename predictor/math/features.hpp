#pragma once
#include <span>
#include <vector>

#include "predictor/data/dataset.hpp"

namespace sluice::predictor {

/// Least and greatest value of each feature, which become 0 and 1. A feature that does not vary
/// becomes 0.
class FeatureScale {
 public:
  FeatureScale() = default;
  FeatureScale(const Dataset& data, std::span<const Query> queries);
  FeatureScale(std::vector<float> low, std::vector<float> high)
      : low_(std::move(low)), high_(std::move(high)) {}

  [[nodiscard]] Leaf apply(const Leaf& leaf) const;
  [[nodiscard]] const std::vector<float>& low() const { return low_; }
  [[nodiscard]] const std::vector<float>& high() const { return high_; }

 private:
  std::vector<float> low_;
  std::vector<float> high_;
};

/// What is added to the features of a leaf at this position (Vaswani et al., 2017): element 2i is
/// sin(position / 10000^(2i/w)), and element 2i + 1 is cos(position / 10000^((2i+1)/w)), where w is
/// kFeatures.
[[nodiscard]] Leaf sinusoid(std::int32_t position);

/// The leaves of a program as a network reads them.
[[nodiscard]] std::vector<Leaf> encode(const Program& program, const FeatureScale& scale,
                                       bool positions);

/// A point for each task in `tasks`: the mean of the scaled features of the leaves of its programs.
[[nodiscard]] std::vector<std::vector<double>> task_means(const Dataset& data,
                                                          const FeatureScale& scale,
                                                          std::span<const std::size_t> tasks);

}  // namespace sluice::predictor
