#include "runner/worker/worker_options.hpp"

#include "runner/command_line.hpp"

namespace sluice::runner {

std::optional<int> parse_worker_options(int argc, char** argv, WorkerOptions& options) {
  CLI::App app("Run the jobs of one model of an experiment. Started by `sluice run`.",
               "sluice-worker-trace");
  app.add_option("experiment", options.experiment_file, "Experiment file")
      ->required()
      ->type_name("FILE");
  app.add_option("--model", options.model_index, "Which of its models, from 0")->required();
  app.add_option("--config-name", options.config_name, "Name of the file in the log")
      ->type_name("FILE");
  app.add_option("--device-name", options.device_name, "Name of the GPU in the log")
      ->type_name("NAME");
  app.add_option("--time-scale", options.time_scale, "Real time per time of the GPU")
      ->check(CLI::PositiveNumber);
  app.add_flag("--simulated", options.simulated, "The GPU is simulated");
  app.add_option("--barrier-fd", options.barrier_fd, "Socket of the load barrier")->type_name("FD");
  app.add_option("--jobs", options.jobs, "End after so many jobs (default: run until killed)");
  app.footer(
      "Example, one model alone and by hand:\n"
      "  sluice exec --priority 0 --gpu sim -- \\\n"
      "    libexec/sluice/sluice-worker-trace exp.json --model 0 --time-scale 10 --simulated "
      "--jobs 5");
  return parse(app, argc, argv);
}

}  // namespace sluice::runner
