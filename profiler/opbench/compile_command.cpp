#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "profiler/opbench/commands.hpp"
#include "profiler/opbench/measure_options.hpp"
#include "profiler/runs/compile_pack.hpp"

namespace sluice::profiler {
namespace {

int compile(const CompileOptions& options) {
  const std::uint64_t begin_ns = base::monotonic_ns();
  const CompileCounts counts = compile_packs(options);
  const double seconds = base::seconds_since(begin_ns);
  fmt::print(
      "{}: {} programs with a binary, {:.1f} MB: {} compiled in {:.1f} s ({:.0f} a minute), ",
      options.out, counts.written(),
      static_cast<double>(std::filesystem::file_size(options.out)) / 1e6, counts.compiled, seconds,
      static_cast<double>(counts.compiled) / seconds * 60);
  fmt::print("{} had one; left out: {} not compiled, {} compiled too long", counts.had,
             counts.failed, counts.too_long);
  if (counts.bare > 0) fmt::print(", {} without a source", counts.bare);
  fmt::print("\n");
  return base::kExitFine;
}

}  // namespace

void add_compile_command(CLI::App& app, CommandBody& run) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* const command = app.add_subcommand(
      "compile", "Compile the programs of packs into one pack of binaries; needs no GPU");
  command->add_option("packs", options->packs, "Packs of programs")->type_name("PACK")->required();
  command->add_option("-o,--out", options->out, "The new pack")->type_name("FILE")->required();
  command
      ->add_option("--arch", options->arch,
                   "Refuse packs for another architecture (default: that of the first pack)")
      ->type_name("sm_90");
  add_compile_options(*command, options->jobs, options->compile_limit_s);
  base::count_option(*command, "--per-task", options->per_task,
                     "Only the first N programs of each task; 0: all", 0);
  command->footer(
      "In the new pack, programs have a binary in place of their source. Those that do not compile "
      "are\nleft out. FILE is written whole or not at all.\n\n"
      "Examples:\n"
      "  sluice opbench compile resnet.programs -o resnet-sm90.programs\n"
      "  sluice opbench compile *.programs -o all.programs --arch sm_90 --per-task 8 -j 32\n"
      "  sluice opbench measure all.programs -o h200.jsonl    on the GPU machine, which compiles "
      "nothing");
  command->callback([&run, options] { run = [options] { return compile(*options); }; });
}

}  // namespace sluice::profiler
