#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sluice::engine {

/// The command line of `sluice train`.
struct TrainOptions {
  std::string model;
  std::string store;
  std::size_t batch_size = 32;
  std::size_t micro_batch_size = 0;  ///< At most; 0: the batch.
  std::size_t epochs = 1;
  std::size_t steps = 10;  ///< Of an epoch.
  double lr = 0.01;
  std::string optimizer = "sgd";
  std::string mode = "normal";
  std::string device;  ///< "cpu" or "cuda"; empty: cuda where there is a GPU.
  std::uint64_t seed = 0;
  bool deterministic = false;
  std::string checkpoint;
  std::size_t checkpoint_steps = 0;  ///< Between two checkpoints; 0: one at the end of each epoch.
  bool resume = false;
};

/// Returns nothing, or the exit code with which to exit now. Throws base::UsageError.
[[nodiscard]] std::optional<int> parse_train_options(int argc, char** argv, TrainOptions& options);

}  // namespace sluice::engine
