#pragma once
#include <memory>

#include "engine/torch/torch_model.hpp"

namespace sluice::engine {

/// A model on a GPU, with one CUDA graph for each block and batch size. `parts.sizes` must hold the
/// sizes to capture. Throws base::RunError for a model that cannot be captured.
[[nodiscard]] std::unique_ptr<ServedModel> captured_model(ModelParts parts);

}  // namespace sluice::engine
