#pragma once
#include <functional>
#include <memory>

#include "server/models/model.hpp"

namespace sluice::server {

/// Makes one instance of a model. Throws base::UsageError or base::RunError.
using MakeInstance = std::function<std::unique_ptr<engine::ServedModel>(const ModelConfig&)>;

/// Loads all instances of a model and measures its blocks, for one item and for a full batch.
/// Throws what `make` throws.
[[nodiscard]] std::shared_ptr<Model> load_model(const ModelConfig& config, const MakeInstance& make,
                                                std::shared_ptr<Statistics> statistics = nullptr);

}  // namespace sluice::server
