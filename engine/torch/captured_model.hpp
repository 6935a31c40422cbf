#pragma once
#include <memory>

#include "engine/torch/graph_workspace.hpp"
#include "engine/torch/torch_model.hpp"

namespace sluice::engine {

/// A model on a GPU, with one CUDA graph for each block and batch size. `parts.sizes` must hold the
/// sizes to capture. Models with the same `workspace` run one after another. Throws base::RunError
/// for a model that cannot be captured.
[[nodiscard]] std::unique_ptr<ServedModel> captured_model(
    ModelParts parts, std::shared_ptr<GraphWorkspace> workspace);

}  // namespace sluice::engine
