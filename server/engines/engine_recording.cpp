// libsluice_serve_recording.so: recordings on a real or the simulated GPU.
#include "engine/recording/served_recording.hpp"
#include "server/engines/engine_plugin.hpp"
#include "server/engines/free_memory.hpp"

using namespace sluice;

extern "C" __attribute__((visibility("default"))) engine::ServedModel* sluice_make_served(
    const server::EngineSettings& settings, const server::ModelConfig& config) {
  engine::RecordingOptions options;
  options.blocks = config.blocks;
  options.device = config.gpus.front();
  options.simulated = settings.place == server::Place::kSimulatedGpu;
  options.weight_bytes = config.weights_mb << 20;
  options.placement = settings.placement;
  return engine::serve_recording(engine::read_recording(settings.recording_file), options)
      .release();
}

extern "C" __attribute__((visibility("default"))) std::uint64_t sluice_free_memory(int gpu) {
  return server::free_memory(gpu);
}
