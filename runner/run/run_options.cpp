#include "runner/run/run_options.hpp"

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "runner/experiment_reader.hpp"

namespace sluice::runner {
namespace {

constexpr double kMaxDurationS = 1e6;

/// Not CLI11's envname: its error for an invalid value does not name the variable.
void take_session_variable(RunOptions& options) {
  const char* name = std::getenv("SLUICE_SESSION");
  if (!options.session.empty() || name == nullptr || *name == '\0') return;
  const std::string fault = base::check_session_name(name);
  if (!fault.empty()) throw base::UsageError("SLUICE_SESSION: " + fault);
  options.session = name;
}

/// An experiment that comes with Sluice is found from any folder by the name that help and pages
/// give it.
std::string installed_experiment(const std::string& file) {
  namespace fs = std::filesystem;
  if (!file.starts_with("exp_configs/") || fs::exists(file)) return file;
  const fs::path installed = base::Install::of_this_program().root() / "share" / "sluice" / file;
  return fs::exists(installed) ? installed.string() : file;
}

void add_options(CLI::App& app, RunOptions& options) {
  auto* positional = app.add_option("experiment", options.experiment_file, "Experiment file")
                         ->type_name("EXPERIMENT.json");
  auto* named = app.add_option("-f,--file", options.experiment_file, "The same")->type_name("FILE");
  named->excludes(positional);
  app.add_option(
         "--gpu", options.gpu,
         "Which GPU: auto is the real GPU if a driver finds a device, else the\nsimulated one")
      ->capture_default_str()
      ->type_name("auto|real|sim")
      ->check(base::one_of({"auto", "real", "sim"}));
  app.add_option("--device", options.device, "Index of the GPU")
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<int>::max()));
  app.add_option("--input", options.input,
                 "Input of every job: a file, or synthetic; a replayed recording\n"
                 "has no input")
      ->type_name("FILE");
  app.add_option("--out", options.out,
                 "Folder for all logs and results; replaces those of an earlier run")
      ->type_name("DIR");
  app.add_option("--pid-file", options.pid_file,
                 "Also write models_pid.json to FILE, for a parser that expects it there")
      ->type_name("FILE");
  app.add_option("--duration", options.duration_s, "Real seconds until the workers are killed")
      ->type_name("S")
      ->check(base::number(1e-3, kMaxDurationS));
  app.add_option("--store", options.store,
                 "The store of exported models (default: $SLUICE_MODELS, else "
                 "~/.local/share/sluice/models)")
      ->type_name("DIR");
  app.add_flag("--export", options.export_missing,
               "Export the models that the store lacks, by `sluice models export`");
  app.add_flag("--digest", options.digest,
               "Let PyTorch models compute deterministically, and write a hash of every job's "
               "outputs to NAME.digest (takes time between jobs)");
  app.add_flag(
      "--trace", options.trace,
      "Record every launch into the folder trace/ next to the logs, for `sluice report` and "
      "`sluice trace`");
  app.add_option("--session", options.session,
                 "Session of the workers (default: the session `default` if its controller\n"
                 "runs, else a new session; also from SLUICE_SESSION)")
      ->type_name("NAME")
      ->check(base::check_session_name);
}

}  // namespace

std::optional<int> parse_run_options(int argc, char** argv, RunOptions& options) {
  CLI::App app("Run an experiment: one process per model, logs, results.", "sluice run");
  add_options(app, options);
  app.footer(
      "Options override the file. Exit code 0: the run lasted its full time with all workers "
      "alive; "
      "1: the\nrun failed or a worker died; 2: wrong usage or configuration, nothing was started; "
      "130, 143: ended\nby Ctrl-C or SIGTERM, with all logs kept.\n\nExamples:\n"
      "  sluice run exp_configs/replay/input_device.json\n"
      "  sluice run exp.json --gpu sim --duration 10 --out results/today\n"
      "  sluice run exp.json --trace --out results/seen\n"
      "  sluice run -f exp.json --device 1 --session mine");
  if (const auto exit_code = base::parse(app, argc, argv)) return exit_code;
  if (options.experiment_file.empty()) {
    throw base::UsageError("no experiment file; see sluice run --help");
  }
  options.experiment_file = installed_experiment(options.experiment_file);
  take_session_variable(options);
  return std::nullopt;
}

void apply_options(const RunOptions& options, Experiment& experiment) {
  nlohmann::json& source = experiment.source;
  if (options.duration_s) experiment.exp_dur_s = options.duration_s;
  if (!experiment.exp_dur_s) {
    throw base::UsageError(experiment.file +
                           ": /: \"exp_dur\" is missing, and there is no --duration");
  }
  if (options.device) experiment.device_id = *options.device;
  if (options.input && *options.input != "synthetic" && !std::filesystem::exists(*options.input)) {
    throw base::UsageError("--input: there is no file " + *options.input);
  }
  source["exp_dur"] = *experiment.exp_dur_s;
  source["device_id"] = experiment.device_id;
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    Model& model = experiment.models[i];
    nlohmann::json& entry = source["models"][i];
    if (options.out) model.output_file_path = *options.out;
    if (options.input) model.input_file_path = *options.input;
    if (options.out) entry["output_file_path"] = *options.out;
    if (options.input) entry["input_file_path"] = *options.input;
    model.source = entry;
  }
  refuse_shared_logs(experiment);
}

}  // namespace sluice::runner
