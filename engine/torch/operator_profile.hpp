#pragma once
#include <vector>

#include "engine/operators/kernel_collection.hpp"
#include "engine/store/model_store.hpp"
#include "engine/torch/serve_options.hpp"

/// The operators of a TorchScript model, measured one by one. Nothing of LibTorch in here.
namespace sluice::engine {

/// Runs `repeats` batches of `options.max_batch` zeros, after two that are not counted, operator by
/// operator as LibTorch calls them, and gives the medians in the order of execution. `kernels`: on
/// a GPU, where the time of an operator is that of its kernels; null on the CPU. Throws
/// base::RunError.
[[nodiscard]] std::vector<OperatorTimes> profile_operators(const StoredModel& model,
                                                           const ServeOptions& options, int repeats,
                                                           const KernelCollection* kernels);

/// The SMs of a GPU.
[[nodiscard]] std::uint32_t sm_count(int gpu);

}  // namespace sluice::engine
