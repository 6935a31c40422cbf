#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "predictor/baselines/model.hpp"

namespace sluice::predictor {

/// One line of loss.csv.
struct EpochLine {
  std::string phase{};  ///< "train" or "tune".
  std::int64_t epoch = 0;
  double seconds = 0;  ///< Since the start of the training, without `probe`.
  double loss = 0;     ///< Mean of the batches.
  double mape = 0;     ///< Of `probe`; NaN for most epochs.
};

struct TrainOptions {
  std::uint64_t seed = 0;
  std::string device{};  ///< "cpu", "cuda", or empty: the GPU if there is one.
  int threads = 1;       ///< Of an operator on the CPU. Small networks gain nothing from more.
  double limit_s = 0;    ///< Ends the training after so long; 0: no limit.
  /// Called about 20 times in a training with the model as it is then, and not counted as its time.
  std::function<double(const LatencyModel&)> probe{};
  std::function<void(const EpochLine&)> on_epoch{};
};

}  // namespace sluice::predictor
