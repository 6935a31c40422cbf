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

}  // namespace

void choose_backend(const JsonNode& node, const fs::path& store, Model& model) {
  const auto backend = node.find("backend");
  if (backend) {
    model.backend = backend->as_text();
    if (model.backend == "torchscript" || model.backend == "aoti") {
      backend->complain(fmt::format(
          "model \"{}\" needs the LibTorch worker, which is not part of this build; only \"trace\" "
          "is",
          model.model_name));
    }
    if (model.backend != "trace") backend->refuse("\"trace\", \"torchscript\" or \"aoti\"");
  }
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
  refuse_name(node.member("model_name"), name, store,
              backend ? ""
                      : ", and running the model itself needs the LibTorch worker, which is not "
                        "part of this build (exp_configs/replay/ holds the replayed forms)");
}

}  // namespace sluice::runner
