#pragma once
#include <string>

#include "runner/experiment.hpp"
#include "runner/model_backend.hpp"

namespace sluice::runner {

/// Reads an experiment file and checks all that can be checked without a GPU: syntax, keys, types,
/// ranges, which backend and recording each model has, and that no two models share a log. Throws
/// base::UsageError.
[[nodiscard]] Experiment read_experiment(const std::string& file, const Backends& backends);

/// Throws base::UsageError if two models would write the same log.
void refuse_shared_logs(const Experiment& experiment);

}  // namespace sluice::runner
