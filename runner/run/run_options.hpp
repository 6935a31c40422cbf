#pragma once
#include <optional>
#include <string>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// The command line of `sluice run`. What is given here wins over the experiment file.
struct RunOptions {
  std::string experiment_file;
  std::string gpu = "auto";
  std::string
      session;  ///< Empty: the default one if its controller runs, else one of the run's own.
  std::optional<int> device;
  std::optional<std::string> input;
  std::optional<std::string> out;
  std::optional<double> duration_s;
  std::string pid_file;         ///< Another place for models_pid.json; empty: none.
  std::string store;            ///< The model store; $SLUICE_MODELS or the default if empty.
  bool export_missing = false;  ///< Models that the store lacks are exported first.
  bool digest = false;          ///< Hashes of every job's outputs beside the logs.
  bool trace = false;           ///< Every launch is recorded, beside the logs.
};

/// Nothing, or the exit code with which to end at once (--help, wrong usage).
[[nodiscard]] std::optional<int> parse_run_options(int argc, char** argv, RunOptions& options);

/// Puts the options into the experiment, also into its JSON, so that the copy which workers read
/// says what is run. Throws base::UsageError: no duration, input file missing, two
/// models with one log.
void apply_options(const RunOptions& options, Experiment& experiment);

}  // namespace sluice::runner
