#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// The command line of a worker. The model itself is in the experiment file, which the worker reads
/// as the runner does.
struct WorkerOptions {
  std::string name;  ///< Unused here. The board shows the beginning of the command line.
  std::string experiment_file;
  std::size_t model_index = 0;
  std::string config_name;  ///< The user's file, for the log; empty: experiment_file.
  std::string device_name = "unknown";
  double time_scale = 1;  ///< Real time per GPU time.
  bool simulated = false;
  bool cpu = false;        ///< The model runs on the CPU, because there is no real GPU.
  int barrier_fd = -1;     ///< -1: start at once.
  std::uint64_t jobs = 0;  ///< Number of jobs; 0: runs until it is killed.
};

/// Adds the options that every worker takes.
void add_worker_options(CLI::App& app, WorkerOptions& options);

/// The model that the options name. Throws base::UsageError if the experiment does not have it.
[[nodiscard]] const Model& chosen_model(const Experiment& experiment, const WorkerOptions& options);

}  // namespace sluice::runner
