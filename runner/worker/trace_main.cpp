// sluice-worker-trace: runs the jobs of one model by replaying a trace.
#include "runner/command_line.hpp"
#include "runner/experiment_reader.hpp"
#include "runner/layout.hpp"
#include "runner/trace.hpp"
#include "runner/worker/job_loop.hpp"
#include "runner/worker/trace_backend.hpp"
#include "runner/worker/worker_options.hpp"

namespace sluice::runner {
namespace {

std::optional<int> parse_options(int argc, char** argv, WorkerOptions& options) {
  CLI::App app("Replay the jobs of one model of an experiment. Started by `sluice run`.",
               kTraceWorker);
  add_worker_options(app, options);
  app.add_option("--time-scale", options.time_scale, "Real time per time of the GPU")
      ->check(CLI::PositiveNumber);
  app.add_flag("--simulated", options.simulated, "The GPU is simulated");
  app.footer(
      "Example, one model alone and by hand:\n"
      "  sluice exec --priority 0 --gpu sim -- \\\n"
      "    libexec/sluice/sluice-worker-trace exp.json --model 0 --time-scale 10 --simulated "
      "--jobs 5");
  return parse(app, argc, argv);
}

int work(int argc, char** argv) {
  WorkerOptions options;
  if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
  const Experiment experiment =
      read_experiment(options.experiment_file, Layout::of_this_program().backends());
  const Model& model = chosen_model(experiment, options);
  TraceBackend backend(model, read_trace(model.trace_file), experiment.device_id,
                       options.time_scale, options.simulated);
  run_jobs(model, options, backend, experiment.device_id);
  return kExitFine;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::runner::run_program(sluice::runner::kTraceWorker,
                                     [&] { return sluice::runner::work(argc, argv); });
}
