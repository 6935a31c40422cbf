// libsluice_serve_recording.so: recordings on a real or the simulated GPU.
#include "engine/memory/device_context.hpp"
#include "engine/recording/served_recording.hpp"
#include "server/engines/engine_plugin.hpp"

using namespace sluice;

extern "C" __attribute__((visibility("default"))) engine::ServedModel* sluice_make_served(
    const server::EngineSettings& settings, const server::ModelConfig& config) {
  engine::RecordingOptions options;
  options.blocks = config.blocks;
  options.device = settings.device;
  options.simulated = settings.place == server::Place::kSimulatedGpu;
  options.weight_bytes = config.weights_mb << 20;
  options.placement = settings.placement;
  return engine::serve_recording(engine::read_recording(settings.recording_file), options)
      .release();
}

extern "C" __attribute__((visibility("default"))) std::uint64_t sluice_free_memory(
    const server::EngineSettings& settings) {
  // Kept, because a context takes long to make, and never released: at the end of the process the
  // driver may be gone before this library.
  static const auto* const context =
      new engine::DeviceContext(engine::MemoryDriver::loaded(), settings.device);
  return context->free_bytes();
}
