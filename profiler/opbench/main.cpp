// `sluice opbench`: measures and tunes tensor programs.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "profiler/opbench/commands.hpp"

namespace sluice::profiler {
namespace {

/// The report is made in Python. Replaces this process; returns only by throwing.
[[noreturn]] void become_report(char** argv) {
  const std::string program = base::Install::of_this_program().subcommand("opbench-report");
  execv(program.c_str(), argv);
  throw base::RunError("cannot run " + program + ": " + std::strerror(errno));
}

int work(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "report") become_report(argv + 1);
  CLI::App app(
      "Measure and tune operators: tensor programs that TVM makes, on a GPU, on a share of\n"
      "its SMs, or on the CPU.",
      "sluice opbench");
  CommandBody run;
  add_run_command(app, run);
  add_space_command(app, run);
  add_measure_command(app, run);
  add_compile_command(app, run);
  add_pairs_command(app, run);
  add_sweep_command(app, run);
  app.add_subcommand("report", "Records as a table and one HTML page");
  app.footer(
      "Examples:\n"
      "  sluice opbench measure docs/data/programs/tuned-h100.programs             on a GPU\n"
      "  sluice opbench report docs/data/programs/h200.jsonl.xz\n"
      "  sluice opbench run --modelname matmul --target llvm --trials 16            needs TVM\n\n"
      "run, space, and programs of target llvm need TVM (./x programs in a checkout). A pack of\n"
      "target cuda needs a GPU only.\n\n"
      "`sluice opbench COMMAND --help` has the options of a command, and more examples.\n\n"
      "Exit codes: 0 fine, 1 the run failed, 2 wrong usage, bad files, or a part is missing.");
  app.require_subcommand(1);
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  return run();
}

}  // namespace
}  // namespace sluice::profiler

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice opbench",
                                   [&] { return sluice::profiler::work(argc, argv); });
}
