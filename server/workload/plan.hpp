#pragma once
#include <string>
#include <vector>

#include "server/workload/arrivals.hpp"
#include "server/workload/load.hpp"
#include "server/workload/options.hpp"

/// From the command line to the arrivals of each model, and to what the load does. Pure, but for
/// the file of --trace.
namespace sluice::server::workload {

/// Throws UsageError for models and options that do not fit each other.
[[nodiscard]] std::vector<Worker> plan(const Options& options);

[[nodiscard]] LoadOptions load_options(const Options& options);

/// For --benchmark: the plan as a table, as the published client prints it.
[[nodiscard]] std::string describe_benchmark(const std::vector<Worker>& workers);

}  // namespace sluice::server::workload
