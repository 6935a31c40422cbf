#pragma once
#include <map>
#include <string>

#include "base/output.hpp"
#include "runner/experiment.hpp"

namespace sluice::runner {

/// Locks on the folders that a run writes to. While this object lives, another run that needs one
/// of them is refused. The kernel releases the locks when this process dies.
class OutputFolders {
 public:
  /// Creates and locks the folders. Throws base::UsageError if a folder cannot be created or is in
  /// use.
  explicit OutputFolders(const Experiment& experiment);

 private:
  std::map<std::string, base::FolderLock> locks_;  ///< By the path of the folder.
};

/// Removes what an earlier run left in the run's folder: its results, reports and logs, also those
/// of models that this experiment does not have. True if there was a run.
bool remove_former_run(const Experiment& experiment);

/// Proves, by opening the files, that the logs and `pid_file`, if it is not empty, can be written,
/// before anything starts. Throws base::UsageError.
void prove_writable(const Experiment& experiment, const std::string& pid_file);

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
