#pragma once
#include "base/install.hpp"
#include "runner/experiment.hpp"
#include "runner/run/gpu_query.hpp"
#include "runner/run/run_options.hpp"

namespace sluice::runner {

/// Makes sure, before anything starts, that the experiment's PyTorch models have their input image,
/// and that the store has what they need on this machine; with --export by exporting what it lacks.
/// Throws engine::MissingModel, which names
/// the command, other ConfigErrors, or base::RunError if an export failed.
void check_torch_models(const RunOptions& options, const Experiment& experiment,
                        const base::Install& install, const Gpus& gpus);

}  // namespace sluice::runner
