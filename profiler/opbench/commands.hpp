#pragma once
#include <CLI/CLI.hpp>
#include <functional>

/// The commands of `sluice opbench`. Each adds itself to the command line; `run` is set to its body
/// if it was chosen.
namespace sluice::profiler {

/// Returns the exit code.
using CommandBody = std::function<int()>;

void add_run_command(CLI::App& app, CommandBody& run);
void add_space_command(CLI::App& app, CommandBody& run);
void add_measure_command(CLI::App& app, CommandBody& run);
void add_compile_command(CLI::App& app, CommandBody& run);
void add_pairs_command(CLI::App& app, CommandBody& run);
void add_sweep_command(CLI::App& app, CommandBody& run);

}  // namespace sluice::profiler
