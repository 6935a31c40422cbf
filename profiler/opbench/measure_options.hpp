#pragma once
#include <CLI/CLI.hpp>

#include "profiler/measure_pack.hpp"

namespace sluice::profiler {

/// What `measure` and `sweep` have in common: packs, records, GPUs and limits.
void add_measure_options(CLI::App& command, MeasureOptions& options);

/// --sm.
void add_share_option(CLI::App& command, MeasureOptions& options);

}  // namespace sluice::profiler
