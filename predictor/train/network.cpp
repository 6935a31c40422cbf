#include "predictor/train/network.hpp"

#include "predictor/data/dataset.hpp"
#include "predictor/data/devices.hpp"

namespace sluice::predictor {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kWidth = kFeatures;
constexpr int kMoments = 5;

/// Linear and ReLU for each hidden width, then a linear layer.
nn::Sequential make_mlp(std::int64_t in, const std::vector<std::int64_t>& hidden,
                        std::int64_t out) {
  nn::Sequential layers;
  for (const std::int64_t width : hidden) {
    layers->push_back(nn::Linear(in, width));
    layers->push_back(nn::ReLU());
    in = width;
  }
  layers->push_back(nn::Linear(in, out));
  return layers;
}

/// Attention between the leaves; an end token of ones says how many there are.
class Transformer : public LabelNetwork {
 public:
  Transformer(const Config& config, std::int64_t leaves) : LabelNetwork(config, leaves) {
    if (config.layers > 0) {
      const auto layer = nn::TransformerEncoderLayerOptions(kWidth, config.heads)
                             .dim_feedforward(config.feed_forward)
                             .dropout(config.dropout);
      encoder_ = register_module(
          "encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, config.layers)));
    }
    flatten_ = register_module("flatten", nn::Linear((leaves + 1) * kWidth, config.flatten));
    embedding_ = register_module(
        "embedding", make_mlp(config.flatten, config.embedding, config.embedding_width));
  }

 protected:
  torch::Tensor embed(const torch::Tensor& tokens, const torch::Tensor& /*filled*/,
                      const torch::Tensor& counts) override {
    const auto places = torch::arange(leaves() + 1, counts.options());
    const auto ends = (places == counts.unsqueeze(1)).unsqueeze(2).to(tokens.dtype());
    const auto row = torch::zeros({tokens.size(0), 1, kWidth}, tokens.options());
    auto sequence = torch::cat({tokens, row}, 1) + ends;
    const auto hidden = places > counts.unsqueeze(1);
    if (encoder_) {
      sequence =
          encoder_->forward(sequence.transpose(0, 1), /*src_mask=*/{}, hidden).transpose(0, 1);
    }
    // A row behind the end holds what attention made of nothing.
    sequence = sequence.masked_fill(hidden.unsqueeze(2), 0);
    return embedding_->forward(torch::relu(flatten_->forward(sequence.flatten(1))));
  }

 private:
  nn::TransformerEncoder encoder_{nullptr};
  nn::Linear flatten_{nullptr};
  nn::Sequential embedding_{nullptr};
};

/// The sum of what a small network makes of each leaf (the MLP of Tenset).
class LeafSum : public LabelNetwork {
 public:
  LeafSum(const Config& config, std::int64_t leaves) : LabelNetwork(config, leaves) {
    leaf_ = register_module("leaf", make_mlp(kWidth, config.embedding, config.flatten));
    embedding_ = register_module(
        "embedding", make_mlp(config.flatten, config.embedding, config.embedding_width));
  }

 protected:
  torch::Tensor embed(const torch::Tensor& tokens, const torch::Tensor& filled,
                      const torch::Tensor& /*counts*/) override {
    const auto each = torch::relu(leaf_->forward(tokens)) * filled.unsqueeze(2);
    return embedding_->forward(each.sum(1));
  }

 private:
  nn::Sequential leaf_{nullptr};
  nn::Sequential embedding_{nullptr};
};

/// A recurrent network that reads leaf after leaf (one level of Tiramisu's).
class LeafSequence : public LabelNetwork {
 public:
  LeafSequence(const Config& config, std::int64_t leaves) : LabelNetwork(config, leaves) {
    leaf_ = register_module("leaf", make_mlp(kWidth, config.embedding, config.flatten));
    lstm_ = register_module(
        "lstm", nn::LSTM(nn::LSTMOptions(config.flatten, config.flatten).batch_first(true)));
    embedding_ = register_module(
        "embedding", make_mlp(config.flatten, config.embedding, config.embedding_width));
  }

 protected:
  torch::Tensor embed(const torch::Tensor& tokens, const torch::Tensor& /*filled*/,
                      const torch::Tensor& counts) override {
    const auto states = std::get<0>(lstm_->forward(torch::relu(leaf_->forward(tokens))));
    const auto last = (counts - 1).view({-1, 1, 1}).expand({-1, 1, states.size(2)});
    return embedding_->forward(states.gather(1, last).squeeze(1));
  }

 private:
  nn::Sequential leaf_{nullptr};
  nn::LSTM lstm_{nullptr};
  nn::Sequential embedding_{nullptr};
};

}  // namespace

Batch Batch::at(const torch::Tensor& rows) const {
  return {leaves.index_select(0, rows), counts.index_select(0, rows), device.index_select(0, rows)};
}

Batch Batch::to(torch::Device where) const {
  return {leaves.to(where), counts.to(where), device.to(where)};
}

LabelNetwork::LabelNetwork(const Config& config, std::int64_t leaves) : leaves_(leaves) {
  normal_ = register_module("normal", nn::BatchNorm1d(config.embedding_width));
  // Without batch normalisation: on one device the embedding of the device does not vary.
  device_ = register_module("device", make_mlp(static_cast<std::int64_t>(kDeviceNumbers),
                                               config.device, config.embedding_width));
  decoder_ = register_module("decoder", make_mlp(config.embedding_width, config.decoder, 1));
}

torch::Tensor LabelNetwork::latent(const Batch& batch) {
  const auto places = torch::arange(leaves_, batch.counts.options());
  const auto behind = places >= batch.counts.unsqueeze(1);
  const auto tokens = batch.leaves.masked_fill(behind.unsqueeze(2), 0);
  const auto filled = behind.logical_not().to(tokens.dtype());
  return normal_->forward(embed(tokens, filled, batch.counts)) + device_->forward(batch.device);
}

torch::Tensor LabelNetwork::decode(const torch::Tensor& latent) {
  return decoder_->forward(latent).squeeze(1);
}

std::shared_ptr<LabelNetwork> make_network(const Config& config, std::int64_t leaves) {
  if (config.network == "mlp") return std::make_shared<LeafSum>(config, leaves);
  if (config.network == "lstm") return std::make_shared<LeafSequence>(config, leaves);
  return std::make_shared<Transformer>(config, leaves);
}

torch::Tensor latent_discrepancy(const torch::Tensor& a, const torch::Tensor& b) {
  const auto first = torch::sigmoid(a);
  const auto second = torch::sigmoid(b);
  const auto first_mean = first.mean(0);
  const auto second_mean = second.mean(0);
  // The square root has no slope at 0.
  const auto distance = [](const torch::Tensor& x, const torch::Tensor& y) {
    return ((x - y).square().sum() + 1e-12).sqrt();
  };
  auto sum = distance(first_mean, second_mean);
  for (int k = 2; k <= kMoments; ++k) {
    sum =
        sum + distance((first - first_mean).pow(k).mean(0), (second - second_mean).pow(k).mean(0));
  }
  return sum;
}

}  // namespace sluice::predictor
