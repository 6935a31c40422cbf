#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// What the runner tells a worker on its command line. Everything about the model is in the
/// experiment file, which the worker reads like the runner does.
struct WorkerOptions {
  std::string name;  ///< Read by nobody here: the board shows the beginning of a command line.
  std::string experiment_file;
  std::size_t model_index = 0;
  std::string config_name;  ///< The file the user gave, for the log; experiment_file if empty.
  std::string device_name = "unknown";
  double time_scale = 1;  ///< How much slower the GPU's time passes.
  bool simulated = false;
  bool cpu = false;        ///< The model runs on the CPU, for want of a real GPU.
  int barrier_fd = -1;     ///< -1: start at once.
  std::uint64_t jobs = 0;  ///< Ends after so many; 0: runs until it is killed.
};

/// Adds the options that every worker takes.
void add_worker_options(CLI::App& app, WorkerOptions& options);

/// The model that the options name. Throws base::UsageError if the experiment has no such.
[[nodiscard]] const Model& chosen_model(const Experiment& experiment, const WorkerOptions& options);

}  // namespace sluice::runner
