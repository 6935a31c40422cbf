#include "runner/model_backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runner/nearest.hpp"
#include "runner/trace.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || fs::path(text).extension() == ".json";
}

[[noreturn]] void refuse_name(const JsonNode& node, const std::string& name, const fs::path& store,
                              const std::string& hint) {
  const auto names = trace_names(store);
  const std::string meant = nearest(name, names);
  node.complain(fmt::format("no trace named \"{}\"{}{}; traces here: {}", name,
                            meant.empty() ? "" : fmt::format(", did you mean \"{}\"?", meant), hint,
                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

void choose_trace(const JsonNode& node, const fs::path& store, const std::string& hint,
                  Model& model) {
  const auto trace = node.find("trace");
  const std::string name = trace ? trace->as_text() : model.model_name;
  if (trace && is_path(name)) {
    model.trace_file = name;
    return;
  }
  const fs::path stored = store / (name + ".json");
  if (!is_path(name) && fs::exists(stored)) {
    model.trace_file = stored;
    return;
  }
  if (trace) refuse_name(*trace, name, store, "");
  refuse_name(node.member("model_name"), name, store, hint);
}

/// What a model from the store cannot be asked for.
void refuse_replay_keys(const JsonNode& node) {
  for (const char* key : {"trace", "host_gap", "host_gap_us"}) {
    if (const auto found = node.find(key)) found->complain("is for \"backend\": \"trace\" only");
  }
}

}  // namespace

void choose_backend(const JsonNode& node, const Backends& backends, Model& model) {
  const auto backend = node.find("backend");
  std::string hint;
  if (backend) {
    model.backend = backend->as_text();
    if (model.backend != "trace" && model.backend != "torchscript" && model.backend != "aoti") {
      backend->refuse("\"trace\", \"torchscript\" or \"aoti\"");
    }
    if (model.backend != "trace" && !backends.torch) {
      backend->complain(
          fmt::format("model \"{}\" needs the LibTorch worker, which is not part of this build "
                      "(./x torch, then "
                      "build again); only \"trace\" is",
                      model.model_name));
    }
  } else if (!node.find("trace")) {
    model.backend = backends.torch ? "torchscript" : "trace";
    hint =
        ", and running the model itself needs the LibTorch worker, which is not part of this build "
        "(./x torch, then build again; exp_configs/replay/ holds the replayed forms)";
  }
  if (model.backend == "trace") {
    choose_trace(node, backends.traces, hint, model);
  } else {
    refuse_replay_keys(node);
  }
}

}  // namespace sluice::runner
