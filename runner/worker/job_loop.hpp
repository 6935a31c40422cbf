#pragma once
#include "engine/backend.hpp"
#include "runner/experiment.hpp"
#include "runner/worker/worker_options.hpp"

namespace sluice::runner {

/// Runs a model's jobs on a loaded backend: a warm-up, the load barrier, then each job when it is
/// due. Marks each job through the C API and logs it. Returns after options.jobs jobs; without that
/// option it runs until the process is killed. device: the GPU's index, for the log. Throws
/// base::RunError.
void run_jobs(const Model& model, const WorkerOptions& options, engine::Backend& backend,
              int device);

}  // namespace sluice::runner
