#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sluice::runner {

/// What the runner tells a worker on its command line. Everything about the model is in the
/// experiment file, which the worker reads like the runner does.
struct WorkerOptions {
  std::string experiment_file;
  std::size_t model_index = 0;
  std::string config_name;  ///< The file the user gave, for the log; experiment_file if empty.
  std::string device_name = "unknown";
  double time_scale = 1;  ///< How much slower the GPU's time passes.
  bool simulated = false;
  int barrier_fd = -1;     ///< -1: start at once.
  std::uint64_t jobs = 0;  ///< Ends after so many; 0: runs until it is killed.
};

/// Nothing, or the exit code with which to end at once (--help, wrong usage).
[[nodiscard]] std::optional<int> parse_worker_options(int argc, char** argv,
                                                      WorkerOptions& options);

}  // namespace sluice::runner
