#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/served_model.hpp"
#include "server/figures/statistics.hpp"
#include "server/figures/timing.hpp"
#include "server/models/config_file.hpp"

namespace sluice::server {

struct Device;

/// A model that is loaded on one device.
struct Model {
  /// Two executors must not run the same instance at the same time.
  struct Instance {
    std::unique_ptr<engine::ServedModel> served;
    std::mutex runs;
    std::size_t executions = 0;  ///< That have begun. For the dispatcher.
  };

  /// the_statistics: null for new ones.
  explicit Model(ModelConfig the_config, std::shared_ptr<Statistics> the_statistics = nullptr)
      : config(std::move(the_config)),
        statistics(the_statistics ? std::move(the_statistics)
                                  : std::make_shared<Statistics>(config.batch_size)) {}

  [[nodiscard]] engine::ServedModel& served() const { return *instances.front()->served; }

  /// The index of its GPU, or kNoGpu.
  [[nodiscard]] int gpu() const { return config.gpus.empty() ? kNoGpu : config.gpus.front(); }

  ModelConfig config;    ///< With no other GPUs than its own.
  std::uint32_t id = 0;  ///< For the scheduler.
  Device* device = nullptr;
  std::size_t first_rank = 0;  ///< Of its instances among those of all devices.
  bool removed = false;        ///< For the dispatcher: it takes no request any more.
  std::vector<std::unique_ptr<Instance>> instances;
  Limits limits;
  Timing timing;  ///< Used by the loader, and then only by the dispatcher.
  const std::shared_ptr<Statistics> statistics;
  std::atomic<std::size_t> waiting{0};      ///< Requests that have not begun.
  std::atomic<std::uint64_t> failed_ns{0};  ///< When a step failed last; 0: never.
};

}  // namespace sluice::server
