#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/model_spec.hpp"

namespace sluice::engine {

/// The folder of exported models, one folder per model with a model.json that describes its
/// variants. Written by `sluice models export`.
struct ModelStore {
  std::filesystem::path folder;
  bool named = false;  ///< By --store, so that commands we propose have to name it too.
};

/// `option` if it is given, else $SLUICE_MODELS, else sluice/models in the user's data folder.
[[nodiscard]] ModelStore model_store(const std::string& option);

/// Where a model is to run.
struct TorchTarget {
  bool cuda = false;
  std::string gpu_arch;       ///< For instance "sm_90"; empty if unknown, then it is not compared.
  std::string torch_version;  ///< Of the LibTorch that will run it, "2.11.0".
};

/// One variant of a model in the store: a file, and what it takes.
struct StoredModel {
  std::string file;  ///< Its path.
  std::string format;
  std::string task;                 ///< classification, detection, segmentation or text.
  std::vector<std::int64_t> input;  ///< Of one item of a batch; 0: any size.
  std::string dtype;
  std::string torch_version;  ///< Of the export.
};

/// The store lacks what an experiment needs, and an export would make it.
class MissingModel : public base::UsageError {
 public:
  MissingModel(const std::string& what, std::vector<std::string> export_args);
  /// What follows `sluice` in the command that makes it.
  [[nodiscard]] const std::vector<std::string>& export_args() const { return export_args_; }

 private:
  std::vector<std::string> export_args_;
};

/// The variant that runs `model` on `target`. `where` (file and JSON path) stands in front of
/// errors. Throws MissingModel, or base::UsageError where the experiment asks for what no export
/// makes.
[[nodiscard]] StoredModel find_stored_model(const ModelStore& store, const ModelSpec& model,
                                            const TorchTarget& target, const std::string& where);

}  // namespace sluice::engine
