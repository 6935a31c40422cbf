#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "base/output.hpp"
#include "profiler/opbench/commands.hpp"
#include "profiler/runs/measure_pack.hpp"
#include "profiler/tuning/network.hpp"
#include "profiler/workers/worker_pool.hpp"

namespace sluice::profiler {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::string executor = "tvm";
  std::string source;  ///< Empty: found by the name.
  std::string model;
  std::string target = "llvm";
  std::int64_t batch = 1;
  std::string tune = "true";
  std::string compare = "true";
  TuningOptions tuning;
  std::string check;  ///< Of measuring_on_gpu().
  bool resume = false;
  std::string out = "data";
  int device = 0;
  int threads = 1;
  unsigned jobs = 0;  ///< 0: as many as suit the target.
  double compile_limit_s = MeasureOptions{}.compile_limit_s;
  std::string predictor;
  std::string predictor_device;
};

/// TVM's name for a target: llvm, cuda, cuda:sm_90, or that name itself.
std::string tvm_target(const std::string& target) {
  if (target == "llvm") return target;
  if (target == "cuda") return "cuda -arch=sm_90";
  if (target.starts_with("cuda -arch=sm_")) return target;
  if (target.starts_with("cuda:sm_")) return "cuda -arch=" + target.substr(5);
  throw base::UsageError("--target: '" + target + "'; there are llvm, cuda and cuda:sm_NN");
}

std::string short_target(const std::string& target) {
  return target.substr(0, target.find_first_of(": "));
}

/// The last part of a path or an address, without its ending.
std::string short_model(const RunOptions& options) {
  const fs::path path(options.model);
  const bool is_file = path.extension() == ".onnx" || path.extension() == ".zip" ||
                       options.model.find("://") != std::string::npos;
  return is_file ? path.stem().string() : options.model;
}

void write_space(const RunOptions& options, const ImportedNetwork& imported,
                 const std::string& file) {
  if (!fs::path(file).parent_path().empty()) {
    fs::create_directories(fs::path(file).parent_path());
  }
  base::LineFile out(file);
  out.write(fmt::format("{}, batch {}, {}: {} tasks\n", options.model, options.batch,
                        options.target, imported.tasks.size()));
  for (const Task& task : imported.tasks) {
    out.write(fmt::format("\n{} x {} ({})\n{}", imported.weight(task.id), task.name,
                          task.workload_key, ProgramSpace(task.sketches).text()));
  }
}

void print_latency(const std::string& when, const Latency& latency) {
  if (!std::isfinite(latency.mean)) {
    fmt::print("{}: none, because a task has no program that runs\n", when);
    return;
  }
  fmt::print("{}: {{'mean': {:.6g}, 'median': {:.6g}, 'std': {:.6g}}} ms\n", when, latency.mean,
             latency.median, latency.std);
}

/// Throws base::RunError that names the tasks without a good program.
void check_all_run(const std::vector<TunedTask>& tasks) {
  std::vector<std::string> without;
  std::vector<std::string> disturbed;
  for (const TunedTask& task : tasks) {
    if (task.first() != nullptr) continue;
    (std::ranges::any_of(task.trials, &Record::disturbed) ? disturbed : without)
        .push_back(task.name);
  }
  if (!disturbed.empty()) {
    throw base::RunError(fmt::format(
        "the network has no latency, because others used the GPU each time that a program of these "
        "tasks was measured (--resume tries again): {}",
        fmt::join(disturbed, ", ")));
  }
  if (without.empty()) return;
  throw base::RunError(
      fmt::format("the network has no latency, because no program was found that runs: {}",
                  fmt::join(without, ", ")));
}

std::unique_ptr<TaskMeasuring> measuring_for(const RunOptions& options, ProgramServer& server,
                                             const std::string& target) {
  if (options.target == "llvm") return measuring_on_cpu(server, target, options.threads);
  MeasureOptions gpu;
  gpu.devices = {options.device};
  gpu.compile_limit_s = options.compile_limit_s;
  gpu.jobs = processors();
  gpu.reference = options.out + "/reference";
  return measuring_on_gpu(server, target, gpu, options.check);
}

/// The operators of a PyTorch model are measured by a program that has LibTorch. Replaces this
/// process; returns only by throwing.
[[noreturn]] void become_operators(const RunOptions& options) {
  const std::string program = base::Install::of_this_program().program("sluice-operators");
  std::vector<std::string> args{program,
                                "--modelname",
                                options.model,
                                "--batchsize",
                                std::to_string(options.batch),
                                "--threads",
                                std::to_string(options.threads),
                                "--out",
                                options.out};
  if (options.target != "llvm") {
    (void)tvm_target(options.target);  // a mistake there
    args.insert(args.end(), {"--device", std::to_string(options.device)});
  }
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw base::RunError("cannot run " + program + ": " + std::strerror(errno));
}

/// Times of programs for a CPU must not be those of a busy CPU, although making and timing take
/// turns: a process of TVM keeps threads.
std::size_t server_processes(const RunOptions& options) {
  if (options.jobs != 0) return options.jobs;
  return options.target == "llvm" ? 1 : processors();
}

const Record* best_of(const TunedTask& task) { return task.best(task.trials.size()); }

void print_latencies(const RunOptions& options, const TunedNetwork& network,
                     const std::vector<TunedTask>& both) {
  const auto& [tasks, defaults] = network;
  const auto first = [](const TunedTask& task) { return task.first(); };
  if (options.tune == "false" || options.compare == "true") {
    print_latency("without tuning", latency_of(tasks, first));
  }
  if (defaults.size() == tasks.size()) {
    print_latency("TVM's own schedules", latency_of(defaults, first));
  } else if (options.compare == "true" && options.target != "llvm") {
    fmt::print("TVM's own schedules: none, because TVM has none for {} of {} tasks\n",
               tasks.size() - defaults.size(), tasks.size());
  }
  if (options.tune == "true") {
    print_latency("tuned", latency_of(tasks, best_of));
    if (defaults.size() == tasks.size()) {
      print_latency("the better of both", latency_of(both, best_of));
    }
  }
}

/// The pack with the sources of the fastest programs. Programs for a CPU have no source.
void write_fastest(const RunOptions& options, const RunName& name, const ImportedNetwork& imported,
                   const std::string& target, ProgramServer& server,
                   const std::vector<TunedTask>& both) {
  if (options.target == "llvm") return;
  std::vector<const Record*> best;
  for (const TunedTask& task : both) best.push_back(best_of(task));
  fmt::print("written: {}\n",
             write_best_programs(options.out, name, imported, target, server, best));
}

int run_model(const RunOptions& options) {
  if (options.executor == "torch") become_operators(options);
  const std::string target = tvm_target(options.target);
  if (options.tuning.tuner == "predict" && options.target == "llvm") {
    throw base::UsageError("--tuner predict is for GPUs: no predictor learns programs for a CPU");
  }
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error || access(options.out.c_str(), W_OK) != 0) {
    throw base::UsageError("--out: " + options.out + " cannot be made or written");
  }
  const base::FolderLock lock(options.out, "sluice opbench run");
  ProgramServer server(server_processes(options));
  // Before the import, which takes minutes: a GPU that cannot be used is said at once.
  const auto measuring = measuring_for(options, server, target);
  const ImportedNetwork imported =
      server.import_network(options.source, options.model, options.batch, target);
  fmt::print("{}: {} tasks, {} calls\n", options.model, imported.tasks.size(),
             imported.network.calls.size());
  if (imported.tasks.empty()) throw base::RunError(options.model + " has no operator to tune");
  TuningOptions tuning = options.tuning;
  // Without tuning, the first program that runs is the whole result.
  if (options.tune == "false") tuning = {"random", 16, tuning.seed};
  RunName name{.model = short_model(options),
               .tuner = tuning.tuner,
               .target = short_target(options.target),
               .batch = options.batch,
               .seed = tuning.seed};
  write_space(options, imported,
              fmt::format("{}/ConfigSpace/{}-{}.json", options.out, name.model, name.target));
  name.device = measuring->device();
  const std::string trials = performance_file(options.out, name) + ".tmp";
  // Else trials of an earlier run would be taken for the first ones of this run.
  if (!options.resume) fs::remove(trials);
  auto known = known_records(trials, name.device);
  RecordFile all(trials);
  const TunedNetwork tuned = tune_network({.tuning = tuning,
                                           .compare = options.compare == "true",
                                           .predictor = options.predictor,
                                           .predictor_device = options.predictor_device},
                                          imported, *measuring, std::move(known), all);
  const auto both = tuned.both();
  write_best(options.out, name, tuned.tasks);
  write_op_costs(options.out, name, tuned.tasks);
  if (options.tune == "true") {
    add_partial_result(options.out, name, tuned.tasks);
    add_latencies(options.out, name, tuned.tasks, tuned.defaults, both);
  }
  print_latencies(options, tuned, both);
  fmt::print("written: {}\n", performance_file(options.out, name));
  write_fastest(options, name, imported, target, server, both);
  check_all_run(tuned.tasks);
  return base::kExitFine;
}

void add_model_options(CLI::App& command, RunOptions& options) {
  command
      .add_option("--modelsource", options.source,
                  "Where the network comes from (default: found by its name)")
      ->type_name("SOURCE")
      ->check(base::one_of({"simple", "local", "transformers", "remoteonnx"}));
  command
      .add_option("--modelname", options.model, "Its name, or the file or address of an ONNX file")
      ->type_name("NAME")
      ->required();
  command.add_option("--target", options.target, "llvm, cuda or cuda:sm_NN")
      ->capture_default_str()
      ->type_name("TARGET");
  command.add_option("--batchsize", options.batch, "Batch size")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 4096));
}

}  // namespace

void add_run_command(CLI::App& app, CommandBody& run) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* const command =
      app.add_subcommand("run", "Import a network, tune its tasks, and report its latency");
  add_model_options(*command, *options);
  command
      ->add_option("--executor", options->executor,
                   "tvm: tensor programs. torch: the operators of a PyTorch model of the store "
                   "(sluice\nmodels), as LibTorch runs them on the CPU (--target llvm) or a GPU "
                   "(cuda). Into op.csv")
      ->capture_default_str()
      ->type_name("tvm|torch")
      ->check(base::one_of({"tvm", "torch"}));
  command
      ->add_option("--iftune", options->tune, "Tune; false: only 16 random programs of each task")
      ->capture_default_str()
      ->type_name("true|false")
      ->check(base::one_of({"true", "false"}));
  command
      ->add_option(
          "--ifcompare", options->compare,
          "Also print the latency without tuning, and on a GPU that of TVM's own schedules")
      ->capture_default_str()
      ->type_name("true|false")
      ->check(base::one_of({"true", "false"}));
  command->add_option("--tuner", options->tuning.tuner, "How programs are chosen")
      ->capture_default_str()
      ->check(base::one_of(tuner_names()));
  command
      ->add_option("--predictor", options->predictor,
                   "--tuner predict: the --cache_dir of sluice predict (default: its default)")
      ->type_name("DIR");
  command
      ->add_option("--predictor-device", options->predictor_device,
                   "The device of devices.csv to predict for (default: the measured one)")
      ->type_name("NAME");
  command->add_option("--trials", options->tuning.trials, "Programs of each task")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1'000'000));
  command->add_option("--seed", options->tuning.seed, "Seed of the tuner")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option(
          "--check", options->check,
          "What outputs are compared with (cuda): the CPU's, or those of the first program\n"
          "of the task (default: cpu, except on the simulated GPU, which computes nothing)")
      ->type_name("cpu|first")
      ->check(base::one_of({"cpu", "first"}));
  command->add_flag("--resume", options->resume,
                    "Go on after an interrupted run with the same options: its trials count");
  command->add_option("--out", options->out, "Folder of the results")
      ->capture_default_str()
      ->type_name("DIR");
  command->add_option("--device", options->device, "Index of the GPU (cuda)")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--threads", options->threads, "Threads of a program (llvm)")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1024));
  command
      ->add_option("--compile-limit-s", options->compile_limit_s,
                   "Give up compiling a program after S seconds (cuda)")
      ->capture_default_str()
      ->type_name("S")
      ->check(CLI::PositiveNumber);
  command
      ->add_option(
          "-j,--jobs", options->jobs,
          "Processes of TVM that make programs at once, about 0.3 GB each, and 1 GB for the\n"
          "first (default: the processors for cuda, 1 for llvm)")
      ->type_name("N")
      ->check(base::whole_number(1, 1024));
  command->footer(
      "Examples:\n"
      "  sluice opbench run --modelsource simple --modelname matmul --target llvm --trials 16\n"
      "  sluice opbench run --modelsource local --modelname resnet-18 --target cuda --tuner ga\n"
      "  sluice opbench run --executor torch --modelname resnet50 --target cuda --batchsize 8");
  command->callback([&run, options] { run = [options] { return run_model(*options); }; });
}

void add_space_command(CLI::App& app, CommandBody& run) {
  auto options = std::make_shared<RunOptions>();
  auto file = std::make_shared<std::string>("space.txt");
  CLI::App* const command =
      app.add_subcommand("space", "Write the configuration spaces of a network's tasks as text");
  add_model_options(*command, *options);
  command->add_option("-o,--out", *file, "File")->capture_default_str()->type_name("FILE");
  command->callback([&run, options, file] {
    run = [options, file] {
      ProgramServer server;
      const auto imported = server.import_network(options->source, options->model, options->batch,
                                                  tvm_target(options->target));
      write_space(*options, imported, *file);
      return base::kExitFine;
    };
  });
}

}  // namespace sluice::profiler
