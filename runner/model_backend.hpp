#pragma once
#include <filesystem>

#include "base/install.hpp"
#include "base/json_node.hpp"
#include "runner/experiment.hpp"

namespace sluice::runner {

/// The backends of this build.
struct Backends {
  std::filesystem::path recordings;  ///< The folder of recordings.
  bool torch = false;                ///< Whether the build has a LibTorch worker.
};

/// The worker programs.
inline constexpr const char* kRecordingWorker = "sluice-worker-recording";
inline constexpr const char* kTorchWorker = "sluice-worker-torch";

/// The backends of this build or installation.
[[nodiscard]] Backends available_backends(const base::Install& install);

/// Sets backend and recording_file of a model from its keys "backend" and "recording". Without
/// "backend", a model with "recording" is replayed. Other models run in the LibTorch worker. A
/// build without that worker replays the recording with the model's name. "recording" is a name in
/// the folder, or a path if it ends in ".json" or has a slash. Throws base::UsageError if this
/// build cannot run the model. Does not read the recording or the model.
void choose_backend(const base::JsonNode& node, const Backends& backends, Model& model);

}  // namespace sluice::runner
