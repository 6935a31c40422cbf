#pragma once
#include <CLI/CLI.hpp>

#include "profiler/runs/measure_pack.hpp"

namespace sluice::profiler {

/// The processes that compile and their limit: -j and --compile-limit-s.
void add_compile_options(CLI::App& command, std::size_t& jobs, double& limit_s);

/// What `measure` and `sweep` have in common: packs, records, GPUs and limits.
void add_measure_options(CLI::App& command, MeasureOptions& options);

/// --sm.
void add_share_option(CLI::App& command, MeasureOptions& options);

}  // namespace sluice::profiler
