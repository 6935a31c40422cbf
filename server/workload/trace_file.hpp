#pragma once
#include <string>
#include <vector>

#include "server/workload/arrivals.hpp"

namespace sluice::server::workload {

/// Arrivals from a CSV file: the time in ms after the start, the model; further columns and a first
/// line without a number are ignored. One worker for each model. Throws UsageError that names the
/// line.
[[nodiscard]] std::vector<Worker> read_trace(const std::string& file);

}  // namespace sluice::server::workload
