#pragma once
#include <memory>
#include <span>
#include <vector>

#include "predictor/data/dataset.hpp"
#include "predictor/data/devices.hpp"

namespace sluice::predictor {

/// What a model is fitted with. It never sees the times of programs that it is tested with.
struct Lesson {
  const Dataset& data;
  const std::vector<DeviceInfo>& devices;  ///< By number of the device in `data`.
  std::span<const Label> train;
  std::span<const Label> tune;        ///< May be empty.
  std::span<const Query> unlabelled;  ///< What is to be predicted, for adapting to its features.
};

/// A way to predict the time of tensor programs.
class LatencyModel {
 public:
  virtual ~LatencyModel() = default;
  virtual void fit(const Lesson& lesson) = 0;
  /// Seconds of each. NaN: this model has no way to predict it.
  [[nodiscard]] virtual std::vector<double> predict(const Dataset& data,
                                                    const std::vector<DeviceInfo>& devices,
                                                    std::span<const Query> queries) const = 0;
};

/// The mean of the logarithms of the times: what every model must beat.
[[nodiscard]] std::unique_ptr<LatencyModel> make_mean();

/// max(flop / peak, bytes / bandwidth) + launch, times one factor per device, which is the median
/// of the labels.
[[nodiscard]] std::unique_ptr<LatencyModel> make_roofline();

/// The time of the same program on the device with the most training labels.
[[nodiscard]] std::unique_ptr<LatencyModel> make_copied();

/// The same, times the ratio of the bandwidths or of the peaks of the two devices, by the
/// arithmetic intensity of the task (after Habitat, Yu et al., 2021, for kernels of one code).
[[nodiscard]] std::unique_ptr<LatencyModel> make_scaling();

/// Gradient boosted trees over mean and maximum of the features of all leaves (after Tenset).
/// Throws base::RunError in a build without XGBoost.
[[nodiscard]] std::unique_ptr<LatencyModel> make_xgboost(std::uint64_t seed);

/// The copied time, times a ratio that trees of the same kind learn from the tuning labels: for the
/// same programs on another device, or on a share of it. Without tuning labels the ratio is 1.
[[nodiscard]] std::unique_ptr<LatencyModel> make_ratio(std::uint64_t seed);

}  // namespace sluice::predictor
