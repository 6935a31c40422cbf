#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/model_spec.hpp"
#include "engine/tensor.hpp"

namespace sluice::engine {

/// The folder of exported models. Each model has a folder with a model.json that describes its
/// variants. `sluice models export` writes the store.
struct ModelStore {
  std::filesystem::path folder;
  bool named = false;  ///< Named by --store, so suggested commands must name the store too.
};

/// The store at `option` if that is not empty, else at $SLUICE_MODELS, else at sluice/models in the
/// user's data folder.
[[nodiscard]] ModelStore model_store(const std::string& option);

/// The device and the LibTorch that will run a model.
struct TorchTarget {
  bool cuda = false;
  std::string gpu_arch;       ///< Such as "sm_90"; empty if unknown, and then not compared.
  std::string torch_version;  ///< The LibTorch that will run the model, such as "2.11.0".
};

/// One variant of a model in the store: its file and its requirements.
struct StoredModel {
  std::string file;  ///< The path.
  std::string format;
  std::string task;                 ///< classification, detection, segmentation, text or imported.
  std::vector<std::int64_t> input;  ///< Shape of one item of a batch; 0: any size.
  std::string dtype;
  std::string torch_version;  ///< The torch that exported the model.
  /// Of an imported model (task "imported"), whose tensors have names. Else empty.
  std::vector<TensorSpec> inputs{};
  std::vector<TensorSpec> outputs{};
  bool vision = false;  ///< It has operators of torchvision.
  bool batched = true;  ///< False: an imported model whose tensors have no batch dimension.
};

/// The store lacks a model that an experiment needs, and an export would create it.
class MissingModel : public base::UsageError {
 public:
  MissingModel(const std::string& what, std::vector<std::string> export_args);
  /// The arguments of `sluice` for that export.
  [[nodiscard]] const std::vector<std::string>& export_args() const { return export_args_; }

 private:
  std::vector<std::string> export_args_;
};

/// The variant that runs `model` on `target`. `where` (file and JSON path) comes first in error
/// messages. Throws MissingModel, or base::UsageError if no export can create what the experiment
/// asks for.
[[nodiscard]] StoredModel find_stored_model(const ModelStore& store, const ModelSpec& model,
                                            const TorchTarget& target, const std::string& where);

/// The TorchScript file of a model, for tools that measure it.
[[nodiscard]] StoredModel find_script(const ModelStore& store, const std::string& model,
                                      const std::string& torch_version);

}  // namespace sluice::engine
