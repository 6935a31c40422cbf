#pragma once
#include <memory>

#include "engine/torch/script_graph.hpp"
#include "engine/torch/serve_options.hpp"
#include "engine/torch/torch_model.hpp"

namespace sluice::engine {

/// The device, made current in this thread. Throws base::RunError if LibTorch has no such GPU.
[[nodiscard]] c10::Device torch_device(const std::optional<int>& gpu);

/// The graph of a TorchScript file.
[[nodiscard]] std::shared_ptr<ScriptGraph> load_graph(const StoredModel& stored,
                                                      const c10::Device& device);

/// The weights of a graph, moved into an arena if the options ask for one. Comes before
/// script_parts(). Null: they stay where they are.
[[nodiscard]] std::shared_ptr<TorchWeights> move_weights(ScriptGraph& graph,
                                                         const StoredModel& stored,
                                                         const c10::Device& device,
                                                         const ServeOptions& options);

/// The parts of a graph that is cut at `options.cuts`.
[[nodiscard]] ModelParts script_parts(std::shared_ptr<const ScriptGraph> graph,
                                      const StoredModel& stored, const c10::Device& device,
                                      const ServeOptions& options);

/// The one part of an AOTInductor package.
[[nodiscard]] ModelParts compiled_parts(const StoredModel& stored, const c10::Device& device,
                                        const ServeOptions& options);

/// The parts as a model: captured where that is possible.
[[nodiscard]] std::unique_ptr<ServedModel> serve(ModelParts parts, const ServeOptions& options);

}  // namespace sluice::engine
