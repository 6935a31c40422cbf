#pragma once
#include <memory>

#include "engine/torch/torch_model.hpp"

namespace sluice::engine {

/// A model whose launch() runs the steps and returns when they are done: every model on the CPU,
/// and on a GPU those that cannot be captured because they wait for it or copy from the host.
[[nodiscard]] std::unique_ptr<ServedModel> direct_model(ModelParts parts);

}  // namespace sluice::engine
