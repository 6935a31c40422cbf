#pragma once
#include <string>

#include "base/gpus.hpp"
#include "runner/experiment.hpp"

namespace sluice::runner {

/// Whether a model runs on the CPU: LibTorch cannot use the simulated GPU.
[[nodiscard]] bool runs_on_cpu(const Model& model, const base::Gpus& gpus);

/// Real time per unit of the time in the model's figures.
[[nodiscard]] double time_scale_of(const Model& model, const base::Gpus& gpus);

/// Lines that say where the models run. Models on the CPU are named, so that nobody takes their
/// figures for figures of a GPU.
[[nodiscard]] std::string describe_places(const Experiment& experiment, const base::Gpus& gpus);

}  // namespace sluice::runner
