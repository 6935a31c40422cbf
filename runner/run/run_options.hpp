#pragma once
#include <optional>
#include <string>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// The command line of `sluice run`. Options override the experiment file.
struct RunOptions {
  std::string experiment_file;
  std::string gpu = "auto";
  std::string session;  ///< Empty: the default session if its controller runs, else a new one.
  std::optional<int> device;
  std::optional<std::string> input;
  std::optional<std::string> out;
  std::optional<double> duration_s;
  std::string pid_file;         ///< A second models_pid.json; empty: none.
  std::string store;            ///< The model store; $SLUICE_MODELS or the default if empty.
  bool export_missing = false;  ///< First export the models that the store lacks.
  bool digest = false;          ///< Write hashes of every job's outputs next to the logs.
  bool trace = false;           ///< Record every launch, next to the logs.
};

/// Returns nothing, or the exit code with which to exit now (--help, wrong usage).
[[nodiscard]] std::optional<int> parse_run_options(int argc, char** argv, RunOptions& options);

/// Applies the options to the experiment and to its JSON, which the workers read. Throws
/// base::UsageError if there is no duration, if an input file is missing, or if two models share a
/// log.
void apply_options(const RunOptions& options, Experiment& experiment);

}  // namespace sluice::runner
