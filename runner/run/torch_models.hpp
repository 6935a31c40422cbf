#pragma once
#include "base/install.hpp"
#include "runner/experiment.hpp"
#include "runner/run/places.hpp"
#include "runner/run/run_options.hpp"

namespace sluice::runner {

/// Checks, before any worker starts, that the input images of the PyTorch models exist and that the
/// store has the models for this machine. With --export, exports the missing models. Throws
/// base::UsageError with the command that solves the problem, or base::RunError if an export
/// failed.
void check_torch_models(const RunOptions& options, const Experiment& experiment,
                        const base::Install& install, const base::Gpus& gpus);

}  // namespace sluice::runner
