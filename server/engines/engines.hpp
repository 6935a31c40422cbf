#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/install.hpp"
#include "server/engines/engine_plugin.hpp"

namespace sluice::server {

/// Settles the engine of each model that is `auto`: dummy, a model of the store, or a recording, in
/// this order. Throws base::UsageError, with the command that helps, if there is no such model.
void choose_engines(const base::Install& install, const engine::ModelStore& store,
                    std::vector<ModelConfig>& models);

/// The versions of a model with a settled engine, in order: the folders `1`, `2`, ... of its folder
/// in the store, or the files `1.json`, ... of a folder of recordings. A model without such has
/// version 1.
[[nodiscard]] std::vector<ModelVersion> find_versions(const engine::ModelStore& store,
                                                      const ModelConfig& config);

/// A model as the config file has it now, or with default settings where only the store or the
/// recordings have it. Its engine is settled. Nothing if there is no such model. file: may be
/// empty. Throws base::UsageError for a mistake in the file.
[[nodiscard]] std::optional<ModelConfig> find_model(const base::Install& install,
                                                    const engine::ModelStore& store,
                                                    const std::string& file,
                                                    const std::string& name);

/// Settles the GPUs of a model: those that it names, or `gpu`; none on the CPU.
void settle_gpus(Place place, int gpu, ModelConfig& config);

/// Makes instances of models with a settled engine. Loads the libraries of engines when they are
/// needed, and keeps them.
class Engines {
 public:
  Engines(base::Install install, EngineSettings settings)
      : install_(std::move(install)), settings_(std::move(settings)) {}

  /// Throws base::UsageError or base::RunError.
  [[nodiscard]] std::unique_ptr<engine::ServedModel> make(const ModelConfig& config) const;

  /// The bytes of a GPU that nobody holds, as the engine of one of the models says; 0 if no engine
  /// uses a GPU. Throws base::RunError.
  [[nodiscard]] std::uint64_t free_memory(const std::vector<ModelConfig>& models, int gpu) const;

 private:
  base::Install install_;
  EngineSettings settings_;
};

}  // namespace sluice::server
