#include "server/engines/engines.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "engine/dummy_model.hpp"
#include "engine/recording/recording.hpp"

namespace sluice::server {
namespace {

namespace fs = std::filesystem;

const std::string kTorch = "in a checkout, ./x torch && ./x build adds PyTorch models";

/// The file of a recording: a path, or a name among those that are installed. Empty if there is
/// none.
std::string recording_file(const base::Install& install, const std::string& path) {
  const fs::path file =
      engine::is_recording_path(path) ? fs::path(path) : install.recordings() / (path + ".json");
  return fs::exists(file) ? file.string() : "";
}

/// The number that a version's folder or file is named by.
std::optional<std::uint64_t> version_number(const std::string& name) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = error == std::errc{} && end == name.data() + name.size();
  if (!whole || number == 0 || name.front() == '0') return std::nullopt;
  return number;
}

std::vector<ModelVersion> store_versions(const engine::ModelStore& store, const std::string& path) {
  std::vector<ModelVersion> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(store.folder / path, ignored)) {
    const std::string name = entry.path().filename().string();
    const auto number = version_number(name);
    if (number && fs::exists(entry.path() / "model.json")) {
      found.push_back({*number, path + "/" + name});
    }
  }
  return found;
}

std::vector<ModelVersion> recording_versions(const std::string& path) {
  std::vector<ModelVersion> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    const auto number = version_number(entry.path().stem().string());
    if (number && entry.path().extension() == ".json") {
      found.push_back({*number, entry.path().string()});
    }
  }
  return found;
}

bool in_store(const engine::ModelStore& store, const std::string& path) {
  return fs::exists(store.folder / path / "model.json") || !store_versions(store, path).empty();
}

[[noreturn]] void no_such_model(const base::Install& install, const engine::ModelStore& store,
                                const ModelConfig& config) {
  const auto names = engine::recording_names(install.recordings());
  throw base::UsageError(base::with_remark(
      fmt::format("model {}: neither the store {} nor the recordings have '{}'{}", config.name,
                  store.folder.string(), config.path, base::did_you_mean(config.path, names)),
      fs::exists(install.engine("torch"))
          ? fmt::format("`sluice models export {}` puts a torchvision model into the store",
                        config.path)
          : "built without LibTorch, so it serves recordings only: " + kTorch));
}

/// A function of an engine's library, which is never unloaded: its models may outlive any scope.
template <class Function>
Function* load_engine(const base::Install& install, const std::string& name, const char* symbol) {
  const fs::path library = install.engine(name);
  if (!fs::exists(library)) {
    throw base::UsageError(fmt::format("this build has no engine '{}' ({}){}", name,
                                       library.string(), name == "torch" ? "; " + kTorch : ""));
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw base::RunError(dlerror());
  void* const found = dlsym(handle, symbol);
  if (found == nullptr) throw base::RunError(dlerror());
  return reinterpret_cast<Function*>(found);
}

}  // namespace

void choose_engines(const base::Install& install, const engine::ModelStore& store,
                    std::vector<ModelConfig>& models) {
  for (ModelConfig& config : models) {
    if (config.engine != "auto") continue;
    if (config.path == "dummy") {
      config.engine = "dummy";
    } else if (in_store(store, config.path)) {
      config.engine = "torch";
    } else if (!recording_file(install, config.path).empty()) {
      config.engine = "recording";
    } else {
      no_such_model(install, store, config);
    }
  }
}

void settle_gpus(Place place, int gpu, ModelConfig& config) {
  const bool on_gpu =
      place == Place::kRealGpu || (place == Place::kSimulatedGpu && !needs_torch(config));
  if (!on_gpu || config.device == "cpu") {
    config.gpus.clear();
  } else if (config.gpus.empty()) {
    config.gpus = {gpu};
  }
}

std::vector<ModelVersion> find_versions(const engine::ModelStore& store,
                                        const ModelConfig& config) {
  std::vector<ModelVersion> found;
  if (config.engine == "recording") {
    if (engine::is_recording_path(config.path)) found = recording_versions(config.path);
  } else if (config.engine != "dummy") {
    found = store_versions(store, config.path);
  }
  if (found.empty()) return {{1, config.path}};
  std::sort(found.begin(), found.end(),
            [](const auto& one, const auto& other) { return one.number < other.number; });
  return found;
}

std::optional<ModelConfig> find_model(const base::Install& install, const engine::ModelStore& store,
                                      const std::string& file, const std::string& name) {
  std::vector<ModelConfig> found;
  if (!file.empty()) found = read_config(file);
  std::erase_if(found, [&](const ModelConfig& config) { return config.name != name; });
  if (found.empty()) {
    const bool exists = name == "dummy" || in_store(store, name) ||
                        fs::exists(install.recordings() / (name + ".json"));
    if (!exists) return std::nullopt;
    found = parse_model_list(name);
  }
  choose_engines(install, store, found);
  return found.front();
}

std::unique_ptr<engine::ServedModel> Engines::make(const ModelConfig& config) const {
  if (config.engine == "dummy") {
    return engine::make_dummy({config.batch_size, std::max<std::size_t>(config.blocks, 1), 0});
  }
  const auto make_with = [this](const char* name) {
    return load_engine<MakeServed>(install_, name, "sluice_make_served");
  };
  EngineSettings settings = settings_;
  if (config.engine != "recording") {
    return std::unique_ptr<engine::ServedModel>(make_with("torch")(settings, config));
  }
  settings.recording_file = recording_file(install_, config.path);
  if (settings.recording_file.empty()) no_such_model(install_, settings.store, config);
  if (settings.place == Place::kCpu) {
    throw base::UsageError("a recording needs a GPU, real or simulated");
  }
  return std::unique_ptr<engine::ServedModel>(make_with("recording")(settings, config));
}

std::uint64_t Engines::free_memory(const std::vector<ModelConfig>& models, int gpu) const {
  for (const ModelConfig& config : models) {
    if (config.engine == "dummy" || config.device == "cpu") continue;
    const std::string name = config.engine == "recording" ? "recording" : "torch";
    return load_engine<FreeMemory>(install_, name, "sluice_free_memory")(gpu);
  }
  return 0;
}

}  // namespace sluice::server
