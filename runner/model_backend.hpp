#pragma once
#include <filesystem>

#include "base/install.hpp"
#include "base/json_node.hpp"
#include "runner/experiment.hpp"

namespace sluice::runner {

/// What this build can run models with.
struct Backends {
  std::filesystem::path recordings;  ///< The folder of recordings.
  bool torch = false;                ///< Whether there is a LibTorch worker.
};

/// The worker programs.
inline constexpr const char* kRecordingWorker = "sluice-worker-recording";
inline constexpr const char* kTorchWorker = "sluice-worker-torch";

/// What this build or installation can run models with.
[[nodiscard]] Backends available_backends(const base::Install& install);

/// Sets backend and recording_file of a model from its keys "backend" and "recording". Without
/// "backend" a model is replayed if "recording" is given, else run by the LibTorch worker, else,
/// where there is none, replayed if a recording has its name. "recording" is a name in the folder,
/// or a path if it ends in
/// ".json" or holds a slash. Throws base::UsageError where this build cannot run the model; whether
/// the recording file, or the model in the store, is sound is seen when it is read.
void choose_backend(const base::JsonNode& node, const Backends& backends, Model& model);

}  // namespace sluice::runner
