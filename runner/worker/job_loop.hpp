#pragma once
#include "engine/backend.hpp"
#include "runner/experiment.hpp"
#include "runner/worker/worker_options.hpp"

namespace sluice::runner {

/// Runs a model's jobs on a backend that has loaded: a warm-up, the load barrier, then jobs as they
/// are due, each marked through the C API and logged. Ends after options.jobs jobs, else only by
/// being killed. device: the GPU's index, for the log. Throws base::RunError.
void run_jobs(const Model& model, const WorkerOptions& options, engine::Backend& backend,
              int device);

}  // namespace sluice::runner
