#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "base/command_line.hpp"
#include "base/statistics.hpp"
#include "profiler/opbench/commands.hpp"
#include "profiler/opbench/measure_options.hpp"
#include "profiler/runs/pairs.hpp"

namespace sluice::profiler {
namespace {

int pairs(const PairOptions& options) {
  const PairCounts counts = measure_pairs(options);
  fmt::print("{}: {} new pairs: {} good, {} disturbed, {} failed; {} known", options.out,
             counts.good + counts.disturbed + counts.failed, counts.good, counts.disturbed,
             counts.failed, counts.known);
  if (counts.left > 0) {
    fmt::print("; {} left out by the time limit: run the same command again", counts.left);
  }
  fmt::print("\n");
  std::vector<double> speedups;
  std::vector<double> slowdowns;
  for (const PairRecord& record : read_pair_records(options.out).records) {
    const bool good = record.error == MeasureError::kNone && !record.times.disturbed;
    if (!good || record.kind != options.kind) continue;
    const PairEffect effect = effect_of(record.times);
    speedups.push_back(effect.speedup);
    for (const double slowdown : effect.slowdown) {
      // A program that got nothing meanwhile is slower than all others.
      slowdowns.push_back(std::isfinite(slowdown) ? slowdown : 1e6);
    }
  }
  if (!speedups.empty()) {
    fmt::print(
        "{} good pairs of kind {}: speed-up over one after the other: median {:.2f}, most "
        "{:.2f}; slowdown of a program: median {:.2f}\n",
        speedups.size(), options.kind, base::percentile(speedups, 0.5),
        base::percentile(speedups, 1), base::percentile(slowdowns, 0.5));
  }
  return base::kExitFine;
}

}  // namespace

void add_pairs_command(CLI::App& app, CommandBody& run) {
  auto options = std::make_shared<PairOptions>();
  CLI::App* const command = app.add_subcommand(
      "pairs", "Measure two programs at once against one after the other; resumes where it ended");
  command->add_option("packs", options->packs, "Packs of programs")->type_name("PACK")->required();
  command
      ->add_option("-r,--records", options->records,
                   "Records of these programs; the fastest program of each operator is paired")
      ->capture_default_str()
      ->type_name("FILE");
  command->add_option("-o,--out", options->out, "Records of pairs are added to this file")
      ->capture_default_str()
      ->type_name("FILE");
  command
      ->add_option("--kind", options->kind,
                   "stream: one process, two streams. mps: two processes under an MPS daemon that "
                   "is\nstarted for them. processes: two processes as the machine shares its GPU")
      ->capture_default_str()
      ->type_name("stream|mps|processes")
      ->check(base::one_of({"stream", "mps", "processes"}));
  base::count_option(*command, "--pairs", options->pairs, "Pairs, chosen at random", 1);
  command->add_option("--seed", options->seed, "Seed of the choice")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--least-us", options->least_us, "Only programs that take at least so long")
      ->capture_default_str()
      ->type_name("US")
      ->check(base::number(0, 1e9));
  command->add_option("--most-us", options->most_us, "Only programs that take at most so long")
      ->capture_default_str()
      ->type_name("US")
      ->check(base::number(0, 1e9));
  command->add_option("--device", options->device, "Index of the GPU")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, 1000));
  add_compile_options(*command, options->jobs, options->compile_limit_s);
  command->add_option("--limit-s", options->limit_s, "Begin no pair after S seconds")
      ->type_name("S")
      ->check(base::number(0.1, 1e6));
  command->footer(
      "Examples:\n"
      "  sluice opbench measure resnet.programs -o h200.jsonl\n"
      "  sluice opbench pairs resnet.programs -r h200.jsonl -o pairs.jsonl\n"
      "  sluice opbench pairs resnet.programs -r h200.jsonl -o pairs.jsonl --kind mps --pairs 50\n"
      "  sluice opbench report pairs.jsonl h200.jsonl -o h200.html");
  command->callback([&run, options] { run = [options] { return pairs(*options); }; });
}

}  // namespace sluice::profiler
