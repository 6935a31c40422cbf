#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "predictor/data/dataset.hpp"
#include "predictor/data/devices.hpp"

namespace sluice::predictor {

/// What a model is fitted with. It never sees the times of programs that it is tested with.
struct Lesson {
  const Dataset& data;
  const std::vector<DeviceInfo>& devices;  ///< By number of the device in `data`.
  std::span<const Label> train;
  std::span<const Label> tune;  ///< May be empty.
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
  /// What restore() reads.
  [[nodiscard]] virtual nlohmann::json saved() const = 0;
  /// Throws base::UsageError or nlohmann::json::exception if another model saved that.
  virtual void restore(const nlohmann::json& saved) = 0;
};

/// The names of the models, the one that is trained by default first.
[[nodiscard]] const std::vector<std::string>& model_names();
/// Throws base::UsageError if there is no model of this name.
[[nodiscard]] std::unique_ptr<LatencyModel> make_model(const std::string& name, std::uint64_t seed);

/// Writes predictor.cbor, with the name of the model.
void save_model(const std::filesystem::path& folder, const std::string& name,
                const LatencyModel& model);
/// Throws base::UsageError if the folder has none, or one that this version cannot read.
[[nodiscard]] std::unique_ptr<LatencyModel> load_model(const std::filesystem::path& folder);

/// A Gaussian process of what a fitted time model leaves of the logarithm of the time: one for
/// programs that were compiled, whose registers are known, and one for others.
[[nodiscard]] std::unique_ptr<LatencyModel> make_gaussian(std::uint64_t seed);
/// The time model alone.
[[nodiscard]] std::unique_ptr<LatencyModel> make_analytic(std::uint64_t seed);
/// The time of the same program on the device with the most training labels.
[[nodiscard]] std::unique_ptr<LatencyModel> make_copied();
/// The copied time, times a ratio that a Gaussian process learns from the tuning labels: for the
/// same programs on another device, or on a share of it. Without tuning labels the ratio is 1.
[[nodiscard]] std::unique_ptr<LatencyModel> make_ratio(std::uint64_t seed);

}  // namespace sluice::predictor
