// sluice-worker-torch: runs the jobs of one PyTorch model.
#include <c10/core/InferenceMode.h>

#include <cstdlib>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "engine/store/model_store.hpp"
#include "engine/torch/torch_backend.hpp"
#include "engine/torch/torch_error.hpp"
#include "runner/experiment_reader.hpp"
#include "runner/load_barrier.hpp"
#include "runner/worker/job_loop.hpp"
#include "runner/worker/worker_options.hpp"

namespace sluice::runner {
namespace {

struct TorchOptions : WorkerOptions {
  std::string store;
  std::string digest_file;
};

std::optional<int> parse_options(int argc, char** argv, TorchOptions& options) {
  CLI::App app("Run the jobs of one PyTorch model of an experiment. Started by `sluice run`.",
               kTorchWorker);
  add_worker_options(app, options);
  app.add_flag("--cpu", options.cpu, "Run on the CPU, where nothing is gated");
  app.add_option("--store", options.store,
                 "The model store (default: $SLUICE_MODELS, else below ~)")
      ->type_name("DIR");
  app.add_option("--digest", options.digest_file,
                 "Compute deterministically, and write a hash of every job's outputs")
      ->type_name("FILE");
  app.footer(
      "Example, one model alone and by hand:\n"
      "  sluice exec --priority 1 -- libexec/sluice/sluice-worker-torch exp.json --model 0 "
      "--jobs 5");
  return base::parse(app, argc, argv);
}

void run_model(const Model& model, const TorchOptions& options, int device) {
  const engine::TorchTarget target{!options.cpu, "", SLUICE_TORCH_VERSION};
  engine::StoredModel stored =
      engine::find_stored_model(engine::model_store(options.store), model, target,
                                options.experiment_file + ": " + model.output_file_name);
  const c10::Device where = options.cpu
                                ? c10::Device(c10::kCPU)
                                : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  engine::TorchBackend backend(model, std::move(stored), where, options.digest_file);
  run_jobs(model, options, backend, device);
}

int work(int argc, char** argv) {
  TorchOptions options;
  if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
  const Experiment experiment = read_experiment(
      options.experiment_file, available_backends(base::Install::of_this_program()));
  const Model& model = chosen_model(experiment, options);
  if (model.backend == "recording") {
    throw base::UsageError(options.experiment_file + ": " + model.output_file_name +
                           " is a recording, which " + kRecordingWorker + " replays");
  }
  if (options.cpu) {
    std::fprintf(stderr, "%s: no real GPU here: %s runs on the CPU, and nothing is gated\n",
                 kTorchWorker, model.output_file_name.c_str());
  }
  // cuBLAS is deterministic with a workspace of this size. It reads the variable at its first use.
  if (!options.digest_file.empty()) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  const c10::InferenceMode inference;
  try {
    run_model(model, options, experiment.device_id);
  } catch (const engine::OutOfMemory& error) {
    // If this model does not fit next to the others, the others must still run. They wait for this
    // worker at the barrier.
    if (options.barrier_fd < 0) throw;
    std::fprintf(stderr, "%s: %s\n", kTorchWorker, error.what());
    static_cast<void>(WorkerBarrier(options.barrier_fd).wait_for_start());
    return base::kExitFailed;
  }
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::base::run_program(sluice::runner::kTorchWorker,
                                   [&] { return sluice::runner::work(argc, argv); });
}
