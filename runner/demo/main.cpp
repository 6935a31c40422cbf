// `sluice demo`: the main result on this machine, from phases that are ordinary experiments.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>

#include "base/command_line.hpp"
#include "runner/demo/demo_table.hpp"
#include "runner/demo/phase_run.hpp"
#include "runner/demo/phases.hpp"
#include "runner/job_log.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

struct DemoOptions {
  std::string gpu = "auto";
  int device = 0;
  std::string out;
  std::optional<double> seconds_per_phase;
};

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::optional<int> parse_demo_options(int argc, char** argv, DemoOptions& options) {
  CLI::App app(
      "A critical and a best-effort model as processes of their own, each alone and then together "
      "under\nevery policy. Ends with a table.",
      "sluice demo");
  app.add_option("--gpu", options.gpu, "auto (real where there is one), real or sim")
      ->capture_default_str()
      ->type_name("KIND")
      ->check(CLI::IsMember({"auto", "real", "sim"}));
  app.add_option("--device", options.device, "Index of the GPU")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--out", options.out, "Folder for logs and results (default results/demo-TIME)")
      ->type_name("DIR");
  app.add_option("--seconds-per-phase", options.seconds_per_phase,
                 fmt::format("Real seconds per phase, of which there are {} (default 10 simulated, "
                             "5 real)",
                             demo_phases().size()))
      ->type_name("S")
      ->check(CLI::Range(0.1, 3600.0));
  app.footer(
      "Each folder below DIR is one phase: its experiment.json runs again with\n"
      "  cd DIR/device-4 && sluice run experiment.json\n\nExamples:\n"
      "  sluice demo\n"
      "  sluice demo --gpu sim --seconds-per-phase 3 --out /tmp/demo");
  return base::parse(app, argc, argv);
}

std::string make_folder(const DemoOptions& options) {
  const std::string folder = options.out.empty() ? fmt::format("results/demo-{:%Y%m%d-%H%M%S}",
                                                               fmt::localtime(std::time(nullptr)))
                                                 : options.out;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw base::UsageError("--out: " + folder + " cannot be made: " + error.message());
  return folder;
}

/// Runs one phase. Throws base::RunError if it failed; nothing is returned if a signal ended it.
std::optional<PhaseResult> run_one(const Phase& phase, const base::Install& install,
                                   const Gpus& gpus, const std::string& folder,
                                   const base::SignalFd& signals, int& exit_code) {
  exit_code = run_phase(install, gpus.simulated ? "sim" : "real", folder, signals);
  if (exit_code > 128) return std::nullopt;
  if (exit_code != 0) {
    throw base::RunError(
        fmt::format("{} failed with {}: see {}/output.txt", phase.title, exit_code, folder));
  }
  return read_phase_result(folder);
}

void add_to_table(const Phase& phase, const PhaseResult& result, DemoTable& table) {
  const bool complete = result.critical.has_value() == phase.critical &&
                        result.best_effort.has_value() == phase.best_effort;
  if (!complete) throw base::RunError(phase.name + ": results.json lacks a model");
  if (!phase.policy.empty()) {
    table.rows.push_back({phase.policy, phase.notice_ms, result});
  } else if (result.critical) {
    table.critical_alone = *result.critical;
  } else {
    table.best_effort_alone = *result.best_effort;
  }
}

std::string summary_of(const PhaseResult& result) {
  std::string text;
  if (result.critical) {
    text += fmt::format("  critical p50 {:.2f} ms, p99 {:.2f} ms", result.critical->p50_ms,
                        result.critical->p99_ms);
  }
  if (result.best_effort) {
    text += fmt::format("  best effort {:.1f} ms a job", result.best_effort->mean_ms);
  }
  return text + "\n";
}

int demo(int argc, char** argv) {
  constexpr double kSimulatedSeconds = 10;
  constexpr double kRealSeconds = 5;
  DemoOptions options;
  if (const auto exit_code = parse_demo_options(argc, argv, options)) return *exit_code;
  const base::Install install = base::Install::of_this_program();
  DemoTable table;
  table.gpus = query_gpus(install, options.gpu, "demo-" + std::to_string(getpid()));
  table.device = options.device;
  if (static_cast<std::size_t>(options.device) >= table.gpus.names.size()) {
    throw base::UsageError(fmt::format("--device: found {}, and the last GPU here is {}",
                                       options.device, table.gpus.names.size() - 1));
  }
  table.seconds_per_phase =
      options.seconds_per_phase.value_or(table.gpus.simulated ? kSimulatedSeconds : kRealSeconds);
  const std::string folder = make_folder(options);
  print(describe_gpu(table.gpus, table.device) + "\nresults: " + folder + "\n");
  const base::SignalFd signals{SIGINT, SIGTERM, SIGHUP, SIGCHLD};
  const auto phases = demo_phases();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const Phase& phase = phases[i];
    const std::string phase_folder = folder + "/" + phase.name;
    fs::create_directories(phase_folder);
    base::LineFile(phase_folder + "/experiment.json")
        .write(demo_experiment(phase, table.seconds_per_phase, table.device).dump(2) + "\n");
    print(fmt::format("[{}/{}] {} ({:g} s)\n", i + 1, phases.size(), phase.title,
                      table.seconds_per_phase));
    int exit_code = 0;
    const auto result = run_one(phase, install, table.gpus, phase_folder, signals, exit_code);
    if (!result) return exit_code;
    print(summary_of(*result));
    add_to_table(phase, *result, table);
  }
  const std::string text = demo_text(table);
  base::LineFile(folder + "/table.txt").write(text);
  base::LineFile(folder + "/results.json").write(demo_json(table).dump(2) + "\n");
  print("\n" + text + "\nlogs, models_pid.json and results: " + folder + "\n");
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice demo", [&] { return sluice::runner::demo(argc, argv); });
}
