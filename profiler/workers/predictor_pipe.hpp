#pragma once
#include <optional>
#include <string>
#include <vector>

#include "profiler/packs/pack.hpp"
#include "profiler/workers/worker_pool.hpp"

namespace sluice::profiler {

/// `sluice predict rank`, in a process of its own.
class PredictorPipe {
 public:
  /// The predictor of a folder, or without one that which `sluice predict` takes, for a device of
  /// devices.csv. Throws base::RunError with its line.
  PredictorPipe(const std::string& folder, const std::string& device);
  /// The same with another command, for tests.
  explicit PredictorPipe(std::vector<std::string> command);

  /// Ratings of programs of a task, with sources, or features for a CPU: the negative logarithm of
  /// the predicted seconds, so larger is better. -infinity where there is no program. Throws
  /// base::RunError.
  [[nodiscard]] std::vector<float> rate(const Task& task,
                                        const std::vector<std::optional<Program>>& programs);

 private:
  [[nodiscard]] nlohmann::json ask_for(const nlohmann::json& request);

  WorkerPool pool_;
};

}  // namespace sluice::profiler
