// libsluice_serve_torch.so: PyTorch models on a real GPU or the CPU.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.hpp"
#include "engine/store/splits.hpp"
#include "engine/torch/served_torch.hpp"
#include "server/engines/engine_plugin.hpp"
#include "server/engines/free_memory.hpp"

namespace sluice::server {
namespace {

/// The nodes at which the blocks of a model begin. Throws base::UsageError if the model has never
/// been split into so many.
std::vector<std::size_t> find_cuts(const engine::ModelStore& store, const ModelConfig& config,
                                   const std::string& device) {
  if (config.blocks <= 1) return {};
  const auto found = engine::find_split(store.folder / config.path / "model.json", config.blocks,
                                        device, SLUICE_TORCH_VERSION);
  if (!found) {
    throw base::UsageError(fmt::format("not split into {} blocks yet; sluice split {} -c {}",
                                       config.blocks, config.path, config.blocks));
  }
  if (found->stale) {
    const std::string line =
        engine::stale_warning(config.path, found->split, device, SLUICE_TORCH_VERSION);
    std::fprintf(stderr, "sluice serve: %s\n", line.c_str());
  }
  return found->split.cuts;
}

std::unique_ptr<engine::ServedModel> make(const EngineSettings& settings,
                                          const ModelConfig& config) {
  const bool on_gpu = settings.place == Place::kRealGpu && config.device != "cpu";
  engine::ServeOptions options;
  if (on_gpu) options.gpu = config.gpus.front();
  const std::string device = engine::torch_device_name(options.gpu);
  engine::ModelSpec spec;
  spec.model_name = config.path;
  spec.backend = config.engine == "aoti" ? "aoti" : "torchscript";
  spec.batch_size = static_cast<int>(config.batch_size);
  const engine::TorchTarget target{on_gpu, on_gpu ? device : "", SLUICE_TORCH_VERSION};
  options.max_batch = config.batch_size;
  options.cuts = find_cuts(settings.store, config, device);
  options.placement = settings.placement;
  options.takes_turns = settings.takes_turns;
  return engine::load_served(engine::find_stored_model(settings.store, spec, target, "the model"),
                             options);
}

}  // namespace
}  // namespace sluice::server

extern "C" __attribute__((visibility("default"))) sluice::engine::ServedModel* sluice_make_served(
    const sluice::server::EngineSettings& settings, const sluice::server::ModelConfig& config) {
  return sluice::server::make(settings, config).release();
}

extern "C" __attribute__((visibility("default"))) std::uint64_t sluice_free_memory(int gpu) {
  return sluice::server::free_memory(gpu);
}
