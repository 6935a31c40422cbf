#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "predictor/baselines/model.hpp"
#include "predictor/config.hpp"
#include "predictor/train/train_options.hpp"

/// Networks that learn, without LibTorch in this header.
namespace sluice::predictor {

class LearnedModel : public LatencyModel {
 public:
  /// Goes on with the weights and the scales that the model has.
  virtual void tune(const Lesson& lesson) = 0;
  [[nodiscard]] virtual const Config& config() const = 0;
  /// Writes predictor.pt and predictor.json. `more` goes into the latter.
  virtual void save(const std::filesystem::path& folder,
                    const nlohmann::ordered_json& more) const = 0;
};

/// Throws base::RunError if `options.device` is not there.
[[nodiscard]] std::unique_ptr<LearnedModel> make_learned(const Config& config,
                                                         const TrainOptions& options);

/// Throws base::UsageError if the folder has no predictor, or one that this version cannot read.
[[nodiscard]] std::unique_ptr<LearnedModel> load_learned(const std::filesystem::path& folder,
                                                         const TrainOptions& options);

/// "cpu", or the name of the GPU that `device` means.
[[nodiscard]] std::string training_device(const std::string& device);

}  // namespace sluice::predictor
