// libsluice_serve_recording.so: recordings on a real or the simulated GPU.
#include "engine/recording/served_recording.hpp"
#include "server/engine_plugin.hpp"

using namespace sluice;

extern "C" __attribute__((visibility("default"))) engine::ServedModel* sluice_make_served(
    const server::EngineSettings& settings, const server::ModelConfig& config) {
  return engine::serve_recording(engine::read_recording(settings.recording_file), config.blocks,
                                 settings.device, settings.place == server::Place::kSimulatedGpu)
      .release();
}
