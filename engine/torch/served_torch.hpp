#pragma once
#include <memory>
#include <optional>
#include <string>

#include "engine/served_model.hpp"
#include "engine/store/model_store.hpp"
#include "engine/torch/serve_options.hpp"

/// PyTorch models behind a server. Nothing of LibTorch in here.
namespace sluice::engine {

/// Loads a model. On a GPU every block is one CUDA graph for each batch size 1, 2, 4 ...
/// max_batch, and a batch is padded to the next one. Detection models cannot be captured: they run
/// whole, launch() waits for them, and max_batch must be 1. An AOTInductor package runs whole and
/// always with max_batch rows. On the CPU launch() returns when the blocks are done. Throws
/// base::UsageError for cuts that the model does not have, base::RunError for a model that cannot
/// be served, and OutOfMemory.
[[nodiscard]] std::unique_ptr<ServedModel> load_served(const StoredModel& model,
                                                       const ServeOptions& options);

/// What LibTorch runs on, as a split names it: such as "sm_90"; "cpu" without `gpu`.
[[nodiscard]] std::string torch_device_name(const std::optional<int>& gpu);

/// The number of GPUs that LibTorch can use.
[[nodiscard]] int torch_gpus();

/// Sets the threads of an operator on the CPU; without it LibTorch takes one for each core.
void use_threads(int threads);

}  // namespace sluice::engine
