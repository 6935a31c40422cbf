// sluice-worker-recording: runs the jobs of one model by replaying a recording.
#include "base/command_line.hpp"
#include "base/install.hpp"
#include "engine/recording/recording.hpp"
#include "engine/recording/recording_backend.hpp"
#include "runner/experiment_reader.hpp"
#include "runner/worker/job_loop.hpp"
#include "runner/worker/worker_options.hpp"

namespace sluice::runner {
namespace {

std::optional<int> parse_options(int argc, char** argv, WorkerOptions& options) {
  CLI::App app("Replay the jobs of one model of an experiment. Started by `sluice run`.",
               kRecordingWorker);
  add_worker_options(app, options);
  app.add_option("--time-scale", options.time_scale, "Real time per GPU time")
      ->check(CLI::PositiveNumber);
  app.add_flag("--simulated", options.simulated, "The GPU is simulated");
  app.footer(
      "Example, one model alone and by hand:\n"
      "  sluice exec --priority 0 --gpu sim -- \\\n"
      "    libexec/sluice/sluice-worker-recording exp.json --model 0 --time-scale 10 --simulated "
      "--jobs 5");
  return base::parse(app, argc, argv);
}

int work(int argc, char** argv) {
  WorkerOptions options;
  if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
  const Experiment experiment = read_experiment(
      options.experiment_file, available_backends(base::Install::of_this_program()));
  const Model& model = chosen_model(experiment, options);
  engine::RecordingBackend backend(model, engine::read_recording(model.recording_file),
                                   experiment.device_id, options.time_scale, options.simulated);
  run_jobs(model, options, backend, experiment.device_id);
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::base::run_program(sluice::runner::kRecordingWorker,
                                   [&] { return sluice::runner::work(argc, argv); });
}
