#include "engine/store/model_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_node.hpp"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kImported = "imported";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string command_line(const std::vector<std::string>& args) {
  return fmt::format("sluice {}", fmt::join(args, " "));
}

/// The tensors that an import has written.
std::vector<TensorSpec> read_specs(const json& tensors) {
  std::vector<TensorSpec> specs;
  for (const json& tensor : tensors) {
    const auto type = tensor.at("datatype").get<std::string>();
    const auto known = parse_data_type(type);
    if (!known) throw json::other_error::create(501, "unknown datatype " + type, &tensor);
    specs.push_back({tensor.at("name"), *known, tensor.at("shape")});
  }
  return specs;
}

/// One search in the store. Every error names the command that solves it.
class Search {
 public:
  Search(const ModelStore& store, const ModelSpec& model, const TorchTarget& target,
         std::string where)
      : store_(store), model_(model), target_(target), where_(std::move(where)) {}

  StoredModel run() {
    const fs::path folder = store_.folder / model_.model_name;
    const std::string description = folder / "model.json";
    if (!fs::exists(description)) {
      missing(fmt::format("no model \"{}\" in the store {}", model_.model_name,
                          store_.folder.string()));
    }
    try {
      return choose(base::parse_json_file(description), folder);
    } catch (const json::exception& error) {
      missing(fmt::format("{} cannot be understood ({})", description, error.what()), true);
    }
  }

 private:
  StoredModel choose(const json& description, const fs::path& folder) {
    StoredModel found;
    found.task = description.at("task").get<std::string>();
    found.torch_version = description.value("torch", "");
    found.format = model_.backend;
    const json variant = matching(description.at("variants"), found.task);
    found.file = folder / variant.at("file").get<std::string>();
    found.dtype = variant.value("dtype", "float32");
    if (found.task == kImported) {
      found.inputs = read_specs(variant.at("inputs"));
      found.outputs = read_specs(variant.at("outputs"));
      found.batched = variant.at("batch") != 0;
      found.vision = variant.contains("operators");
    } else {
      found.vision = found.task == "detection";
      found.input = variant.at("input").get<std::vector<std::int64_t>>();
    }
    check(found);
    return found;
  }

  /// Returns a matching variant, of type float32 if there is one.
  json matching(const json& variants, const std::string& task) {
    json best;
    for (const json& variant : variants) {
      if (!fits(variant, task)) continue;
      if (best.is_null() || variant.value("dtype", "") == "float32") best = variant;
    }
    if (!best.is_null()) return best;
    std::string there;
    if (!others_.empty()) there = fmt::format(", only for {}", fmt::join(others_, " and "));
    missing(fmt::format("no {} of \"{}\" in the store {}{}", wanted(), model_.model_name,
                        store_.folder.string(), there));
  }

  bool fits(const json& variant, const std::string& task) {
    if (variant.at("format") != model_.backend) return false;
    if (model_.backend == "aoti") return fits_compiled(variant);
    // If the experiment scales the input, the model's own resizing would undo that.
    return task != "detection" || variant.value("resizes", false) != model_.resize.has_value();
  }

  bool fits_compiled(const json& variant) {
    const std::string device = variant.at("device").get<std::string>();
    const std::string arch = variant.value("gpu_arch", "");
    const bool right_arch = !target_.cuda || target_.gpu_arch.empty() || arch == target_.gpu_arch;
    // Without a batch dimension, each request runs alone.
    const int batch = std::max(variant.at("batch").get<int>(), 1);
    if (device == device_name() && right_arch && batch == model_.batch_size) return true;
    others_.insert(
        fmt::format("{} batch {}", device == "cpu" || arch.empty() ? device : arch, batch));
    return false;
  }

  void check(const StoredModel& found) {
    if (!fs::exists(found.file)) missing("the store lacks " + found.file, true);
    if (found.format != "aoti") return;
    if (found.torch_version != target_.torch_version) {
      missing(fmt::format("{} was compiled by torch {} and works with no other, but this build has "
                          "{}",
                          found.file, found.torch_version, target_.torch_version),
              true);
    }
    if (!model_.resize || found.input.size() != 3) return;
    if (found.input[1] == model_.resize->first && found.input[2] == model_.resize->second) return;
    throw base::UsageError(fmt::format(
        "{}: resize_size is [{}, {}], but {} takes {}x{} only; use the torchscript backend, or "
        "{} --size {} {}",
        where_, model_.resize->first, model_.resize->second, found.file, found.input[1],
        found.input[2], command_line(export_args(true)), model_.resize->first,
        model_.resize->second));
  }

  [[nodiscard]] std::string device_name() const { return target_.cuda ? "cuda" : "cpu"; }

  [[nodiscard]] std::string wanted() const {
    if (model_.backend == "training") return "file to train";
    if (model_.backend != "aoti") {
      return model_.resize ? "torchscript file without resizing" : "torchscript file";
    }
    const std::string device =
        target_.cuda ? (target_.gpu_arch.empty() ? "GPUs" : target_.gpu_arch) : "the CPU";
    return fmt::format("AOTInductor package for {}, batch {},", device, model_.batch_size);
  }

  [[nodiscard]] std::vector<std::string> export_args(bool force) const {
    std::vector<std::string> args{"models", "export", model_.model_name};
    if (model_.backend == "training") args.emplace_back("--train");
    if (model_.backend == "aoti") {
      args.insert(args.end(), {"--format", "aoti", "--batch", std::to_string(model_.batch_size),
                               "--device", device_name()});
    }
    if (force) args.emplace_back("--force");
    if (store_.named) args.insert(args.end(), {"--store", store_.folder.string()});
    return args;
  }

  [[noreturn]] void missing(const std::string& what, bool force = false) const {
    const auto args = export_args(force);
    throw MissingModel(fmt::format("{}: {}; create it with: {}", where_, what, command_line(args)),
                       args);
  }

  const ModelStore& store_;
  const ModelSpec& model_;
  const TorchTarget& target_;
  std::string where_;
  std::set<std::string> others_;  ///< Packages of this model for other targets.
};

}  // namespace

ModelStore model_store(const std::string& option) {
  if (!option.empty()) return {fs::absolute(option), true};
  if (const std::string named = environment("SLUICE_MODELS"); !named.empty()) {
    return {fs::absolute(named), false};
  }
  const std::string data = environment("XDG_DATA_HOME");
  return {(data.empty() ? fs::path(environment("HOME")) / ".local/share" : fs::path(data)) /
              "sluice/models",
          false};
}

MissingModel::MissingModel(const std::string& what, std::vector<std::string> export_args)
    : base::UsageError(what), export_args_(std::move(export_args)) {}

StoredModel find_stored_model(const ModelStore& store, const ModelSpec& model,
                              const TorchTarget& target, const std::string& where) {
  return Search(store, model, target, where).run();
}

StoredModel find_script(const ModelStore& store, const std::string& model,
                        const std::string& torch_version) {
  ModelSpec script;
  script.model_name = model;
  script.backend = "torchscript";
  return find_stored_model(store, script, TorchTarget{false, "", torch_version}, model);
}

}  // namespace sluice::engine
