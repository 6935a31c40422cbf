#pragma once
#include "engine/placement.hpp"
#include "engine/served_model.hpp"
#include "engine/store/model_store.hpp"
#include "server/models/config_file.hpp"

/// An engine is a library that the server loads when a model needs it: a server without PyTorch
/// models starts without LibTorch, and a server without a GPU without a driver.
namespace sluice::server {

/// Where a server runs its models.
enum class Place { kRealGpu, kSimulatedGpu, kCpu };

struct EngineSettings {
  engine::ModelStore store;
  Place place = Place::kCpu;
  std::string recording_file;                               ///< For a recording.
  engine::Placement placement = engine::Placement::kFixed;  ///< Of the weights.
  bool takes_turns = true;  ///< Models of a GPU run one after another.
};

/// Makes an instance, which the caller owns. Throws base::UsageError or base::RunError.
using MakeServed = engine::ServedModel*(const EngineSettings& settings, const ModelConfig& config);

/// The bytes of a GPU that nobody holds. Throws base::RunError.
using FreeMemory = std::uint64_t(int gpu);

}  // namespace sluice::server

/// Each engine exports this function.
extern "C" sluice::server::MakeServed sluice_make_served;
/// So does each engine that uses a GPU.
extern "C" sluice::server::FreeMemory sluice_free_memory;
