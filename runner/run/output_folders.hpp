#pragma once
#include <string>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// Makes the folders of all logs and proves, by opening the files, that the logs and
/// models_pid.json can be written, before anything starts. Throws base::UsageError.
void prepare_output(const Experiment& experiment);

/// The folder of what belongs to the run as a whole: that of the first model's log.
[[nodiscard]] std::string run_folder(const Experiment& experiment);

/// What the simulated GPU did, in the folder of traces.
inline constexpr const char* kGpuLog = "gpu.log";

/// Removes the traces of an earlier run. Where they are wanted, returns the absolute path of their
/// folder, trace/ of the run, else nothing. Throws base::UsageError.
[[nodiscard]] std::string prepare_trace(const Experiment& experiment, bool wanted);

/// Writes the experiment as it is run, options applied, for the workers to read. Returns its path.
[[nodiscard]] std::string write_resolved_experiment(const Experiment& experiment);

}  // namespace sluice::runner
