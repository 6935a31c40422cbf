#pragma once
#include <filesystem>

#include "runner/experiment.hpp"
#include "runner/json_node.hpp"

namespace sluice::runner {

/// What this build can run models with.
struct Backends {
  std::filesystem::path traces;  ///< The folder of traces.
  bool torch = false;            ///< Whether there is a LibTorch worker.
};

/// Sets backend and trace_file of a model from its keys "backend" and "trace". Without "backend" a
/// model is replayed if "trace" is given, else run by the LibTorch worker, else, where there is
/// none, replayed if a trace has its name. "trace" is a name in the folder, or a path if it ends in
/// ".json" or holds a slash. Throws ConfigError where this build cannot run the model; whether the
/// trace file, or the model in the store, is sound is seen when it is read.
void choose_backend(const JsonNode& node, const Backends& backends, Model& model);

}  // namespace sluice::runner
