#pragma once
#include <filesystem>

#include "runner/experiment.hpp"
#include "runner/json_node.hpp"

namespace sluice::runner {

/// Sets backend and trace_file of a model from its keys "backend" and "trace". Without "backend" a
/// model is replayed if "trace" is given or the store has a trace of its name. "trace" is a name in
/// the store, or a path if it ends in ".json" or holds a slash. Throws ConfigError where this build
/// cannot run the model; whether the trace file is sound is seen when it is read.
void choose_backend(const JsonNode& node, const std::filesystem::path& store, Model& model);

}  // namespace sluice::runner
