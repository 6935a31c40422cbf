#pragma once
#include <string>

#include "runner/experiment.hpp"
#include "runner/model_backend.hpp"

namespace sluice::runner {

/// Reads an experiment file and does every check that needs no GPU: syntax, keys, types, ranges,
/// the backend and recording of each model, and that no two models share a log. Throws
/// base::UsageError.
[[nodiscard]] Experiment read_experiment(const std::string& file, const Backends& backends);

/// Throws base::UsageError if two models would write the same log.
void refuse_shared_logs(const Experiment& experiment);

}  // namespace sluice::runner
