// `sluice run`: an experiment from its file to its results.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/child.hpp"
#include "base/command_line.hpp"
#include "base/json_text.hpp"
#include "engine/recording/recording.hpp"
#include "engine/store/model_store.hpp"
#include "runner/experiment_reader.hpp"
#include "runner/job_log.hpp"
#include "runner/run/models_pid.hpp"
#include "runner/run/output_folders.hpp"
#include "runner/run/results.hpp"
#include "runner/run/run_options.hpp"
#include "runner/run/session_end.hpp"
#include "runner/run/supervisor.hpp"
#include "runner/run/torch_models.hpp"
#include "shm/messages.hpp"
#include "shm/session.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Reads the experiment and its recordings, and checks them. Throws base::UsageError.
Experiment load_experiment(const RunOptions& options, const base::Install& install) {
  Experiment experiment = read_experiment(options.experiment_file, available_backends(install));
  apply_options(options, experiment);
  for (const Model& model : experiment.models) {
    if (model.backend == "recording")
      static_cast<void>(engine::read_recording(model.recording_file));
  }
  return experiment;
}

void check_device(const RunOptions& options, const Experiment& experiment, const base::Gpus& gpus) {
  const auto count = static_cast<int>(gpus.names.size());
  if (experiment.device_id < count) return;
  const std::string where = options.device ? "--device" : experiment.file + ": /device_id";
  throw base::UsageError(fmt::format("{}: found {}, allowed: {} ({} {} GPU{} here){}", where,
                                     experiment.device_id,
                                     count == 1 ? "0" : fmt::format("0 to {}", count - 1), count,
                                     gpus.simulated ? "simulated" : "real", count == 1 ? "" : "s",
                                     options.device ? "" : "; --device N uses another one"));
}

void write_models_pid(const RunContext& context, const Supervisor& supervisor) {
  const Experiment& experiment = context.experiment;
  std::vector<std::pair<std::string, pid_t>> pids;
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    pids.emplace_back(experiment.models[i].display_name(), supervisor.workers()[i].pid());
  }
  const std::string text = models_pid_text(pids);
  base::LineFile(fs::path(run_folder(experiment)) / kModelsPidFile).write(text);
  if (!context.pid_file.empty()) base::LineFile(context.pid_file).write(text);
}

/// Whether any worker has the interposer. Only those workers are gated, counted and traced.
bool any_hooked(const RunContext& context) {
  const auto& models = context.experiment.models;
  return std::any_of(models.begin(), models.end(), [&](const Model& model) {
    return model.control.hooked && !runs_on_cpu(model, context.gpus);
  });
}

/// Writes a file of results. A full disk costs the file and a line, but not the table.
bool save(const RunContext& context, const char* name, const std::string& text) {
  try {
    base::LineFile(fs::path(run_folder(context.experiment)) / name).write(text);
    return true;
  } catch (const base::RunError& error) {
    std::fprintf(stderr, "sluice run: %s\n", error.what());
    return false;
  }
}

/// Prints, saves and returns the status of the session; null if no worker has the interposer. Call
/// it while the workers live. Sets `saved` to false if it is not saved.
nlohmann::json print_status(const RunContext& context, bool& saved) {
  if (!any_hooked(context)) return nullptr;
  const std::string program = context.install.program("sluice-status");
  print("\n");
  base::run_to_end({program, "--coverage", "--session", context.session});
  const base::Captured json = base::capture({program, "--json", "--session", context.session});
  saved = save(context, "status.json", json.out);
  constexpr bool kMayThrow = false;
  return nlohmann::json::parse(json.out, nullptr, kMayThrow);
}

RunResult collect(const RunContext& context, const Supervisor& supervisor, Supervisor::Stop stop,
                  const nlohmann::json& status) {
  RunResult result;
  result.configuration = context.experiment.file;
  result.session = context.session;
  result.gpus = context.gpus;
  result.device = context.experiment.device_id;
  result.mps = context.experiment.mps;
  result.duration_s = supervisor.elapsed_s();
  result.stopped_by = stop == Supervisor::Stop::kTime     ? "time"
                      : stop == Supervisor::Stop::kSignal ? "a signal"
                                                          : "the end of all workers";
  for (std::size_t i = 0; i < context.experiment.models.size(); ++i) {
    const WorkerProcess& worker = supervisor.workers()[i];
    const Model& model = context.experiment.models[i];
    const double time_scale = time_scale_of(model, context.gpus);
    const bool on_cpu = runs_on_cpu(model, context.gpus);
    ModelResult& added = result.models.emplace_back(
        summarise(model, worker.pid(), time_scale, on_cpu, worker.end()));
    if (on_cpu) continue;
    added.target = target_result(model, worker.pid(), time_scale, added.table.jct_ms, status);
  }
  split_by_collisions(result.models);
  return result;
}

/// Returns whether all is saved.
bool report(const RunResult& result, const RunContext& context) {
  const std::string folder = run_folder(context.experiment);
  print("\n" + results_table(result));
  // The name of the experiment's file may have any bytes.
  const std::string json = base::json_text(results_json(result), 2);
  bool saved = save(context, "results.json", json + "\n");
  saved = save(context, "results.csv", results_csv(result)) && saved;
  print("logs and results: " + folder + "\n");
  if (context.trace.empty()) return saved;
  if (!any_hooked(context)) {
    print("no trace: no model of this run has the interposer (control false, or on the CPU)\n");
  } else {
    print(fmt::format("trace: sluice report {0}, or sluice trace {0} -o run.json\n", folder));
  }
  return saved;
}

int exit_code_of(const Supervisor& supervisor) {
  constexpr int kSignalBase = 128;
  if (supervisor.signal() != 0) return kSignalBase + supervisor.signal();
  const bool died = std::any_of(supervisor.workers().begin(), supervisor.workers().end(),
                                [](const WorkerProcess& worker) { return !worker.end().empty(); });
  return died ? base::kExitFailed : base::kExitFine;
}

/// Starts the workers, runs them, and kills them. Returns the exit code.
int execute(const RunContext& context) {
  const Experiment& experiment = context.experiment;
  Supervisor supervisor(context);
  write_models_pid(context, supervisor);
  if (!supervisor.load()) return exit_code_of(supervisor);
  const std::size_t count = experiment.models.size();
  print(fmt::format("{} worker{} loaded; running for {:g} s", count, count == 1 ? "" : "s",
                    *experiment.exp_dur_s));
  const bool simulated =
      std::any_of(experiment.models.begin(), experiment.models.end(), [&](const Model& model) {
        return context.gpus.simulated && !runs_on_cpu(model, context.gpus);
      });
  if (simulated) {
    print(fmt::format(", {:g} s of GPU time", *experiment.exp_dur_s / context.gpus.time_scale));
  }
  print("\n");
  const Supervisor::Stop stop = supervisor.run(*experiment.exp_dur_s);
  nlohmann::json status;
  bool saved = true;
  if (stop != Supervisor::Stop::kAllDied) status = print_status(context, saved);
  supervisor.kill_all();
  saved = report(collect(context, supervisor, stop, status), context) && saved;
  const int code = exit_code_of(supervisor);
  return code == base::kExitFine && !saved ? base::kExitFailed : code;
}

void leave_session(const std::string& session) {
  constexpr double kLimitS = 5;
  for (const std::string& path : wait_for_session_end(session, kLimitS)) {
    std::fprintf(stderr, "sluice run: still exists %g s after the last worker: %s\n", kLimitS,
                 path.c_str());
  }
}

/// The session of the run: the requested one, else the default session if it has a controller, else
/// `own`.
std::string choose_session(const RunOptions& options, const std::string& own) {
  if (!options.session.empty()) return options.session;
  const std::string common(base::kDefaultSession);
  const base::Fd controller(shm::connect_controller(shm::socket_path(common).c_str()));
  return controller.get() >= 0 ? common : own;
}

int run(int argc, char** argv) {
  RunOptions options;
  if (const auto exit_code = parse_run_options(argc, argv, options)) return *exit_code;
  const base::Install install = base::Install::of_this_program();
  const Experiment experiment = load_experiment(options, install);
  const std::string own_session = "run-" + std::to_string(getpid());
  const std::string session = choose_session(options, own_session);
  const OutputFolders folders(experiment);
  const std::string trace = prepare_trace(experiment, options.trace);
  // For the simulated GPU, which inherits our environment from its first client.
  if (!trace.empty()) setenv("SLUICE_SIM_LOG", (fs::path(trace) / kGpuLog).c_str(), 1);
  const base::Gpus gpus = base::query_gpus(install, options.gpu, session);
  check_device(options, experiment, gpus);
  check_torch_models(options, experiment, install, gpus);
  if (experiment.mps && gpus.simulated) {
    throw base::UsageError(experiment.file +
                           ": /mps: MPS needs a real GPU, and there is none here (" +
                           gpus.why_simulated + "); remove the key or set it to false");
  }
  const std::string mps_control = experiment.mps ? base::find_mps_control() : "";
  if (remove_former_run(experiment)) {
    print("replacing the results of an earlier run in " + run_folder(experiment) + "\n");
  }
  prove_writable(experiment, options.pid_file);
  print(describe_places(experiment, gpus) + "session " + session + "\n");
  RunContext context{install,
                     experiment,
                     gpus,
                     session,
                     write_resolved_experiment(experiment),
                     engine::model_store(options.store).folder,
                     options.digest,
                     trace,
                     options.pid_file,
                     nullptr};
  int exit_code = base::kExitFailed;
  try {
    std::optional<base::MpsDaemon> mps;
    if (experiment.mps) mps.emplace(mps_control, fs::path(run_folder(experiment)) / "mps");
    context.mps = mps ? &*mps : nullptr;
    exit_code = execute(context);
  } catch (const base::RunError& error) {
    std::fprintf(stderr, "sluice run: %s\n", error.what());
  }
  if (session == own_session) {
    leave_session(session);
  } else {
    remove_what_a_killed_controller_left(session);
  }
  return exit_code;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice run", [&] { return sluice::runner::run(argc, argv); });
}
