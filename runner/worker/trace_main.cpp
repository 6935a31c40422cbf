// sluice-worker-trace: runs the jobs of one model by replaying a trace.
#include <sys/prctl.h>

#include "runner/command_line.hpp"
#include "runner/experiment_reader.hpp"
#include "runner/layout.hpp"
#include "runner/trace.hpp"
#include "runner/worker/job_loop.hpp"
#include "runner/worker/trace_backend.hpp"
#include "runner/worker/worker_options.hpp"

namespace sluice::runner {
namespace {

int work(int argc, char** argv) {
  WorkerOptions options;
  if (const auto exit_code = parse_worker_options(argc, argv, options)) return *exit_code;
  const Experiment experiment =
      read_experiment(options.experiment_file, Layout::of_this_program().traces());
  if (options.model_index >= experiment.models.size()) {
    throw ConfigError(options.experiment_file + ": has no model " +
                      std::to_string(options.model_index));
  }
  const Model& model = experiment.models[options.model_index];
  // The default slack lets every sleep end 50 us late.
  prctl(PR_SET_TIMERSLACK, 1UL);
  TraceBackend backend(model, read_trace(model.trace_file), experiment.device_id,
                       options.time_scale, options.simulated);
  run_jobs(model, options, backend, experiment.device_id);
  return kExitFine;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::runner::run_program("sluice-worker-trace",
                                     [&] { return sluice::runner::work(argc, argv); });
}
