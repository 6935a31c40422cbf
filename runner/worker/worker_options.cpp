#include "runner/worker/worker_options.hpp"

#include "base/error.hpp"

namespace sluice::runner {

void add_worker_options(CLI::App& app, WorkerOptions& options) {
  app.add_option("experiment", options.experiment_file, "Experiment file")
      ->required()
      ->type_name("FILE");
  app.add_option("--name", options.name, "Name of the client for `sluice status` and `sluice set`")
      ->type_name("NAME");
  app.add_option("--model", options.model_index, "Index of the model, from 0")->required();
  app.add_option("--config-name", options.config_name, "Name of the file in the log")
      ->type_name("FILE");
  app.add_option("--device-name", options.device_name, "Name of the GPU in the log")
      ->type_name("NAME");
  app.add_option("--barrier-fd", options.barrier_fd, "Socket of the load barrier")->type_name("FD");
  app.add_option("--jobs", options.jobs,
                 "Exit after this number of jobs (default: run until killed)");
}

const Model& chosen_model(const Experiment& experiment, const WorkerOptions& options) {
  if (options.model_index < experiment.models.size()) {
    return experiment.models[options.model_index];
  }
  throw base::UsageError(options.experiment_file + ": there is no model " +
                         std::to_string(options.model_index));
}

}  // namespace sluice::runner
