#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/command_line.hpp"
#include "base/output.hpp"
#include "profiler/opbench/commands.hpp"
#include "profiler/opbench/measure_options.hpp"
#include "profiler/runs/sweep.hpp"
#include "profiler/tuner/tuners.hpp"
#include "profiler/tuning/measuring.hpp"
#include "profiler/workers/worker_pool.hpp"

namespace sluice::profiler {
namespace {

/// Prints a line for each operator, and writes them all into a table.
int show(const std::string& resource, const std::vector<SweepRow>& rows, const std::string& table) {
  base::LineFile out(table);
  out.write("resource,task,name,amount,seconds,turning_point\n");
  for (const SweepRow& row : rows) {
    const int point = turning_point(row.seconds);
    fmt::print("{} {}: {} {}", row.task.substr(0, 6), row.name, resource, point);
    for (const auto& [amount, seconds] : row.seconds) {
      fmt::print("{} {}: {:.1f} us", amount == row.seconds.begin()->first ? ";" : ",", amount,
                 seconds * 1e6);
      out.write(fmt::format("{},{},{},{},{:.6g},{}\n", resource, row.task, row.name, amount,
                            seconds, point));
    }
    fmt::print("\n");
  }
  fmt::print("{}: {} operators; after the name, the least {} that is within 5 % of the best\n",
             table, rows.size(), resource);
  if (rows.empty()) throw base::RunError("no operator has a good record; see the lines above");
  return base::kExitFine;
}

/// 1, 2, 4 and so on, and `most`.
std::vector<int> powers_of_two_to(int most) {
  std::vector<int> numbers;
  for (int number = 1; number < most; number *= 2) numbers.push_back(number);
  numbers.push_back(most);
  return numbers;
}

struct ThreadSweep {
  std::string source = "simple";
  std::string model;
  std::vector<int> threads = powers_of_two_to(static_cast<int>(processors()));
  std::size_t programs = 16;
  std::uint64_t seed = 0;
  std::string out = "records.jsonl";
};

/// Without the numbers that the machine has too few processors for. Names these once.
std::vector<int> possible_threads(std::vector<int> threads) {
  const int most = static_cast<int>(processors());
  const auto here = [most](int number) { return number <= most; };
  const auto too_many = std::stable_partition(threads.begin(), threads.end(), here);
  if (too_many == threads.end()) return threads;
  const std::string text = fmt::format("--threads {}: this machine has {} processors",
                                       fmt::join(too_many, threads.end(), ","), most);
  threads.erase(too_many, threads.end());
  if (threads.empty()) throw base::UsageError(text);
  base::print_error("sluice opbench", text + ": left out");
  return threads;
}

/// The fastest of some random programs with the most threads, and then with each number of threads.
std::vector<SweepRow> sweep_threads(const ThreadSweep& options) {
  const std::vector<int> all = possible_threads(options.threads);
  ProgramServer server;
  const auto network = server.import_network(options.source, options.model, 1, "llvm");
  RecordFile out(options.out);
  const int most = *std::ranges::max_element(all);
  std::vector<SweepRow> rows;
  for (const Task& task : network.tasks) {
    const ProgramSpace space(task.sketches);
    const auto measured = [&](int threads, const std::vector<std::uint64_t>& indices) {
      const auto measuring = measuring_on_cpu(server, "llvm", threads);
      measuring->begin(task);
      std::vector<Program> programs;
      for (auto& program : measuring->make(indices)) {
        if (program) programs.push_back(std::move(*program));
      }
      return measuring->measure(task, std::move(programs),
                                [&](const Record& record) { out.add(record); });
    };
    const auto tuner = make_tuner("random", {.space = space, .seed = options.seed});
    const auto tried = measured(most, tuner->propose(options.programs));
    const auto best = std::ranges::min_element(tried, {}, &Record::good_cost);
    if (best == tried.end() || !best->good()) continue;
    SweepRow row{.task = task.id, .name = task.name, .seconds = {{most, best->cost()}}};
    for (const int threads : all) {
      if (threads == most) continue;
      const Record record = measured(threads, {best->index}).front();
      if (record.good()) row.seconds[threads] = record.cost();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_threads(CLI::App& sweep, CommandBody& run, const std::shared_ptr<std::string>& table) {
  auto options = std::make_shared<ThreadSweep>();
  CLI::App* const command =
      sweep.add_subcommand("threads", "Threads of the CPU that an operator needs");
  command->add_option("--modelsource", options->source, "Where the network comes from")
      ->capture_default_str()
      ->check(base::one_of({"simple", "local", "transformers", "remoteonnx"}));
  command->add_option("--modelname", options->model, "Its name")->type_name("NAME")->required();
  command
      ->add_option("--threads", options->threads,
                   "Numbers of threads (default: 1, 2, 4 and so on up to the processors)")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(base::whole_number(1, 1024));
  base::count_option(*command, "--programs", options->programs,
                     "Random programs of each operator, of which the fastest is swept", 1);
  command->add_option("--seed", options->seed, "Seed of their choice")->capture_default_str();
  command->add_option("-o,--out", options->out, "Records are added to this file")
      ->capture_default_str()
      ->type_name("FILE");
  command->callback([&run, options, table] {
    run = [options, table] { return show("threads", sweep_threads(*options), *table); };
  });
}

using Sweep = std::vector<SweepRow> (*)(const SweepOptions&);

SweepOptions& add_packs(CLI::App& command, CommandBody& run, const std::string& resource,
                        Sweep sweep, const std::shared_ptr<std::string>& table) {
  auto options = std::make_shared<SweepOptions>();
  add_measure_options(command, options->measure);
  command.callback([&run, options, resource, sweep, table] {
    run = [options, resource, sweep, table] { return show(resource, sweep(*options), *table); };
  });
  return *options;
}

}  // namespace

void add_sweep_command(CLI::App& app, CommandBody& run) {
  CLI::App* const sweep = app.add_subcommand(
      "sweep", "How many SMs, threads of a block, or threads of the CPU operators need");
  auto table = std::make_shared<std::string>("sweep.csv");
  sweep->require_subcommand(1);
  sweep->fallthrough();
  sweep->add_option("--table", *table, "Table of all times")
      ->capture_default_str()
      ->type_name("FILE");
  CLI::App* const sm = sweep->add_subcommand("sm", "SMs of a GPU; resumes where it ended");
  SweepOptions& sms = add_packs(*sm, run, "SMs", sweep_sms, table);
  sms.measure.sms = {132, 96, 64, 32, 16};
  add_share_option(*sm, sms.measure);
  base::count_option(*sm, "--programs", sms.programs,
                     "Programs of each operator that are measured on the shares: the fastest", 1);
  CLI::App* const block =
      sweep->add_subcommand("block", "Threads of a block; resumes where it ended");
  SweepOptions& blocks = add_packs(*block, run, "threads of a block", sweep_blocks, table);
  base::count_option(*block, "--programs", blocks.programs,
                     "Programs of each operator for each size of blocks", 1);
  add_threads(*sweep, run, table);
  sweep->footer(
      "Examples:\n"
      "  sluice opbench sweep sm resnet.programs -o h200.jsonl --sm 132,96,64,32,16\n"
      "  sluice opbench sweep block resnet.programs -o h200.jsonl --limit-s 60\n"
      "  sluice opbench sweep threads --modelname matmul");
}

}  // namespace sluice::profiler
