#pragma once
#include <torch/nn.h>

#include "predictor/config.hpp"

namespace sluice::predictor {

/// Programs as tensors.
struct Batch {
  torch::Tensor leaves;  ///< [B, L, kFeatures]; rows behind the leaves of a program are not read.
  torch::Tensor counts;  ///< [B], int64: leaves of each program, at most L.
  torch::Tensor device;  ///< [B, 8]

  [[nodiscard]] Batch at(const torch::Tensor& rows) const;
  [[nodiscard]] Batch to(torch::Device where) const;
};

/// From programs to labels: leaves -> embedding, plus the embedding of the device -> decoder.
class LabelNetwork : public torch::nn::Module {
 public:
  /// `leaves`: the most that a program has.
  LabelNetwork(const Config& config, std::int64_t leaves);

  /// What both embeddings are together, [B, embedding_width].
  [[nodiscard]] torch::Tensor latent(const Batch& batch);
  /// [B]
  [[nodiscard]] torch::Tensor decode(const torch::Tensor& latent);
  [[nodiscard]] std::int64_t leaves() const { return leaves_; }

 protected:
  /// [B, L, kFeatures], [B, L] -> [B, embedding_width]. `filled` is 1 for leaves and 0 behind them,
  /// where `tokens` are 0.
  virtual torch::Tensor embed(const torch::Tensor& tokens, const torch::Tensor& filled,
                              const torch::Tensor& counts) = 0;

 private:
  std::int64_t leaves_;
  torch::nn::BatchNorm1d normal_{nullptr};
  torch::nn::Sequential device_{nullptr};
  torch::nn::Sequential decoder_{nullptr};
};

/// The network of this config, with random weights.
[[nodiscard]] std::shared_ptr<LabelNetwork> make_network(const Config& config, std::int64_t leaves);

/// Central moment discrepancy of two latents, each [B, width], after a sigmoid; see
/// moment_discrepancy().
[[nodiscard]] torch::Tensor latent_discrepancy(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace sluice::predictor
