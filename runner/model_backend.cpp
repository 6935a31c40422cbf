#include "runner/model_backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.hpp"
#include "engine/recording/recording.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_name(const base::JsonNode& node, const std::string& name,
                              const fs::path& store, const std::string& hint) {
  const auto names = engine::recording_names(store);
  const std::string fault = fmt::format("no recording named \"{}\"{}{}", name, hint,
                                        base::did_you_mean(name, names, '"'));
  node.complain(base::with_remark(
      fault, fmt::format("recordings here: {}",
                         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")))));
}

void choose_recording(const base::JsonNode& node, const fs::path& store, const std::string& hint,
                      Model& model) {
  const auto recording = node.find("recording");
  const std::string name = recording ? recording->as_text() : model.model_name;
  if (recording && engine::is_recording_path(name)) {
    model.recording_file = name;
    return;
  }
  const fs::path stored = store / (name + ".json");
  if (!engine::is_recording_path(name) && fs::exists(stored)) {
    model.recording_file = stored;
    return;
  }
  if (recording) refuse_name(*recording, name, store, "");
  refuse_name(node.member("model_name"), name, store, hint);
}

/// Refuses the keys that only a recording can have.
void refuse_replay_keys(const base::JsonNode& node) {
  for (const char* key : {"recording", "host_gap", "host_gap_us"}) {
    if (const auto found = node.find(key))
      found->complain("is only for \"backend\": \"recording\"");
  }
}

}  // namespace

Backends available_backends(const base::Install& install) {
  return {install.recordings(), fs::exists(install.program(kTorchWorker))};
}

void choose_backend(const base::JsonNode& node, const Backends& backends, Model& model) {
  const auto backend = node.find("backend");
  std::string hint;
  if (backend) {
    model.backend = backend->as_text();
    if (model.backend != "recording" && model.backend != "torchscript" && model.backend != "aoti") {
      backend->refuse("\"recording\", \"torchscript\" or \"aoti\"");
    }
    if (model.backend != "recording" && !backends.torch) {
      backend->complain(
          fmt::format("model \"{}\" needs the LibTorch worker, which is not part of this build "
                      "(./x torch, then build again); only \"recording\" is",
                      model.model_name));
    }
  } else if (!node.find("recording")) {
    model.backend = backends.torch ? "torchscript" : "recording";
    hint =
        ", and running the model itself needs the LibTorch worker, which is not part of this build "
        "(./x torch, then build again; exp_configs/replay/ holds the replayed forms)";
  }
  if (model.backend == "recording") {
    choose_recording(node, backends.recordings, hint, model);
  } else {
    refuse_replay_keys(node);
  }
}

}  // namespace sluice::runner
