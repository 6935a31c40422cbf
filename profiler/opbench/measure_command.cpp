#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "profiler/opbench/commands.hpp"
#include "profiler/opbench/measure_options.hpp"
#include "profiler/records/network_sums.hpp"
#include "profiler/runs/measure_cpu.hpp"

namespace sluice::profiler {
namespace {

std::string error_name(MeasureError error) {
  switch (error) {
    case MeasureError::kInstantiation:
      return "not in the space";
    case MeasureError::kCompileHost:
    case MeasureError::kCompileDevice:
      return "not compiled";
    case MeasureError::kRuntimeDevice:
      return "failed while they ran";
    case MeasureError::kWrongAnswer:
      return "wrong result";
    case MeasureError::kCompileTimeout:
      return "compiled too long";
    case MeasureError::kRunTimeout:
      return "ran too long";
    default:
      return "other errors";
  }
}

MeasureCounts measure_on_cpu(MeasureOptions options) {
  if (!options.sms.empty()) throw base::UsageError("--sm: the pack is for CPUs; use --threads");
  if (!options.reference.empty()) {
    throw base::UsageError(
        "--reference: the pack is for CPUs; its outputs are compared with those of the unscheduled "
        "program");
  }
  if (options.threads.empty()) options.threads = {1};
  ProgramServer server;
  return measure_cpu_packs(options, server);
}

MeasureCounts measure_on_gpu(const MeasureOptions& options) {
  if (!options.threads.empty()) throw base::UsageError("--threads: the pack is for GPUs; use --sm");
  if (!options.reference.empty() && !std::filesystem::is_directory(options.reference)) {
    throw base::UsageError(fmt::format(
        "--reference {}: no such folder; see sluice programs reference", options.reference));
  }
  return measure_packs(options);
}

/// Of each network, the device on which it is fastest first.
void print_networks(const MeasureCounts& counts, const std::string& records) {
  for (const NetworkSum& sum : network_sums(counts.networks, records)) {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [device, seconds] : sum.seconds) order.emplace_back(seconds, device);
    std::ranges::sort(order);
    std::vector<std::string> parts;
    for (const auto& [seconds, device] : order) {
      parts.push_back(fmt::format("{} {:.4g} ms", device, seconds * 1e3));
    }
    fmt::print("{}, batch {}, the fastest programs of {} calls: {}\n", sum.name, sum.batch,
               sum.calls, fmt::join(parts, ", "));
  }
}

int measure(const MeasureOptions& options) {
  const std::uint64_t begin_ns = base::monotonic_ns();
  const MeasureCounts counts =
      is_for_cpu(options.packs) ? measure_on_cpu(options) : measure_on_gpu(options);
  const double seconds = base::seconds_since(begin_ns);
  std::size_t all = counts.good + counts.disturbed;
  for (const auto& [error, number] : counts.errors) all += number;
  fmt::print("{}: {} new records in {:.1f} s ({:.0f} a minute): {} good, {} disturbed", options.out,
             all, seconds, static_cast<double>(all) / seconds * 60, counts.good, counts.disturbed);
  for (const auto& [error, number] : counts.errors)
    fmt::print(", {} {}", number, error_name(error));
  fmt::print("; {} known", counts.known);
  if (counts.left > 0) {
    fmt::print("; {} programs left out by the time limit: run the same command again", counts.left);
  }
  fmt::print("\n");
  if (counts.disturbed > 0) {
    fmt::print(stderr,
               "sluice opbench: {} records are no labels, because something else used the machine "
               "meanwhile (disturbed). Run the same command again when it is quieter: it measures "
               "only these again\n",
               counts.disturbed);
  }
  print_networks(counts, options.out);
  if (counts.without_reference > 0) {
    fmt::print(stderr,
               "sluice opbench: {} tasks have no outputs in {}: their programs were compared with "
               "the first of each task\n",
               counts.without_reference, options.reference);
  }
  if (counts.bare > 0) {
    fmt::print(
        stderr,
        "sluice opbench: {} programs cannot be made: for a GPU they have neither a source nor "
        "a binary, for a CPU another TVM or PyTorch made their task\n",
        counts.bare);
  }
  return all + counts.known == 0 && counts.bare > 0 ? base::kExitUsage : base::kExitFine;
}

}  // namespace

void add_compile_options(CLI::App& command, std::size_t& jobs, double& limit_s) {
  jobs = processors();
  base::count_option(command, "-j,--jobs", jobs, "Programs that are compiled at once", 1, 1024);
  command.add_option("--compile-limit-s", limit_s, "Give up compiling a program after S seconds")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0.1, 1e6));
}

void add_share_option(CLI::App& command, MeasureOptions& options) {
  command
      .add_option("--sm", options.sms,
                  "Measure on shares of so many SMs (132,64: all of an H200, and 64 of them)")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(base::whole_number(1, 100'000));
}

void add_measure_options(CLI::App& command, MeasureOptions& options) {
  command.add_option("packs", options.packs, "Packs of programs")->type_name("PACK")->required();
  command.add_option("-o,--out", options.out, "Records are added to this file")
      ->capture_default_str()
      ->type_name("FILE");
  command.add_option("--device", options.devices, "Indices of the GPUs; all must be of one type")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("N,...")
      ->check(base::whole_number(0, 1000));
  add_compile_options(command, options.jobs, options.compile_limit_s);
  command.add_option("--limit-s", options.limit_s, "Begin no program after S seconds")
      ->type_name("S")
      ->check(base::number(0.1, 1e6));
}

void add_measure_command(CLI::App& app, CommandBody& run) {
  auto options = std::make_shared<MeasureOptions>();
  CLI::App* const command = app.add_subcommand(
      "measure",
      "Compile and measure the programs of packs on a GPU, or on this CPU; resumes where it ended");
  add_measure_options(*command, *options);
  add_share_option(*command, *options);
  command
      ->add_option("--threads", options->threads,
                   "Threads of a program on the CPU, for packs of target llvm (default 1)")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(base::whole_number(1, 1024));
  base::count_option(*command, "--per-task", options->per_task,
                     "Only the first N programs of each task; 0: all", 0);
  command
      ->add_option("--reference", options->reference,
                   "Folder of inputs and expected outputs, TASK/BUFFER.bin")
      ->type_name("DIR");
  command->footer(
      "A killed run loses one program for each GPU; run the same command again.\n\n"
      "Examples:\n"
      "  sluice opbench measure resnet.programs -o h200.jsonl\n"
      "  sluice opbench measure *.programs --sm 132,96,64,32,16 --device 0,1 --limit-s 400\n"
      "  sluice opbench measure llvm.programs --threads 1,2 --per-task 4 -o cpu.jsonl\n"
      "  sluice exec --priority 0 -- sluice opbench measure resnet.programs    as best effort");
  command->callback([&run, options] { run = [options] { return measure(*options); }; });
}

}  // namespace sluice::profiler
