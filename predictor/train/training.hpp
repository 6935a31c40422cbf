#pragma once
#include <torch/optim/adam.h>

#include <chrono>
#include <memory>

#include "predictor/train/network.hpp"
#include "predictor/train/train_options.hpp"

namespace sluice::predictor {

/// Programs with their labels.
struct Samples {
  Batch batch;
  torch::Tensor labels;  ///< [B], float

  [[nodiscard]] std::int64_t size() const { return labels.size(0); }
};

/// The training of one network: the loss, the optimizer, the order of the samples.
class Training {
 public:
  /// `model`: what `options.probe` is called with.
  Training(std::shared_ptr<LabelNetwork> network, const Config& config, const TrainOptions& options,
           const LatencyModel& model);

  /// Learns from `source`, and from `tune` if there are any: then a batch of these goes with each
  /// batch of the source. `unlabelled` are programs whose latents are to be like those of `source`;
  /// read only if the weight of the discrepancy is above 0.
  void run(const std::string& phase, std::int64_t epochs, const Samples& source,
           const Samples* tune, const Batch* unlabelled);

 private:
  struct Sums {
    double loss = 0;
    double batches = 0;
  };

  [[nodiscard]] Sums run_epoch(const Samples& source, const Samples* tune, const Batch* unlabelled,
                               std::int64_t& steps, std::int64_t total_steps);
  [[nodiscard]] torch::Tensor loss_of(const Samples& samples, const torch::Tensor& latent);
  [[nodiscard]] torch::Tensor draw(std::int64_t from, std::int64_t count) const;
  void set_rate(std::int64_t step, std::int64_t total_steps);
  [[nodiscard]] double elapsed_s() const;
  [[nodiscard]] bool out_of_time() const;

  std::shared_ptr<LabelNetwork> network_;
  const Config& config_;
  const TrainOptions& options_;
  const LatencyModel& model_;
  torch::optim::Adam optimizer_;
  torch::Device where_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double probe_s_ = 0;
};

}  // namespace sluice::predictor
