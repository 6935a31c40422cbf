// Rows behind the leaves of a program that reach the result make a prediction depend on the other
// programs of its batch.
#include "predictor/train/network.hpp"

#include <gtest/gtest.h>

#include "predictor/data/dataset.hpp"
#include "predictor/math/sampling.hpp"

namespace sluice::predictor {
namespace {

constexpr std::int64_t kRoom = 6;

Batch random_batch() {
  torch::manual_seed(3);
  return {torch::rand({4, kRoom, static_cast<std::int64_t>(kFeatures)}),
          torch::tensor({1, 3, 6, 2}, torch::kLong), torch::rand({4, 8})};
}

std::shared_ptr<LabelNetwork> network_of(const std::string& kind) {
  Config config;
  config.network = kind;
  torch::manual_seed(1);
  auto network = make_network(config, kRoom);
  network->eval();
  return network;
}

torch::Tensor labels_of(LabelNetwork& network, const Batch& batch) {
  const torch::NoGradGuard no_gradients;
  return network.decode(network.latent(batch));
}

class Networks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Networks, testing::Values("transformer", "mlp", "lstm"));

TEST_P(Networks, WhatIsBehindTheLeavesChangesNothing) {
  const auto network = network_of(GetParam());
  const Batch batch = random_batch();
  Batch other = batch;
  other.leaves = batch.leaves.clone();
  other.leaves[0].slice(0, 1) = 1e3;
  other.leaves[1].slice(0, 3) = -7;
  other.leaves[3].slice(0, 2) = 42;
  EXPECT_TRUE(torch::equal(labels_of(*network, batch), labels_of(*network, other)));
}

TEST_P(Networks, EveryLeafAndTheDeviceChangeTheLabel) {
  const auto network = network_of(GetParam());
  const Batch batch = random_batch();
  const auto before = labels_of(*network, batch);
  for (const std::int64_t leaf : {0, 1, 2}) {
    Batch other = batch;
    other.leaves = batch.leaves.clone();
    other.leaves[1][leaf] += 0.5;
    const auto after = labels_of(*network, other);
    EXPECT_NE(after[1].item<float>(), before[1].item<float>()) << leaf;
    EXPECT_EQ(after[2].item<float>(), before[2].item<float>()) << leaf;
  }
  Batch other = batch;
  other.device = batch.device + 0.5;
  EXPECT_FALSE(torch::equal(labels_of(*network, other), before));
}

// Rows of zeros are no leaves: the number of leaves must count.
TEST_P(Networks, TheNumberOfLeavesChangesTheLabel) {
  const auto network = network_of(GetParam());
  Batch batch = random_batch();
  batch.leaves[1].slice(0, 2) = 0;
  const auto before = labels_of(*network, batch);
  batch.counts = torch::tensor({1, 2, 6, 2}, torch::kLong);
  EXPECT_NE(labels_of(*network, batch)[1].item<float>(), before[1].item<float>());
}

TEST(LatentDiscrepancy, IsThatOfPointsAfterASigmoid) {
  torch::manual_seed(5);
  const auto a = torch::randn({50, 3});
  const auto b = torch::randn({40, 3}) * 2 + 1;
  const auto points = [](const torch::Tensor& t) {
    std::vector<Point> found;
    const auto s = torch::sigmoid(t);
    for (std::int64_t i = 0; i < s.size(0); ++i) {
      found.push_back({s[i][0].item<double>(), s[i][1].item<double>(), s[i][2].item<double>()});
    }
    return found;
  };
  EXPECT_NEAR(latent_discrepancy(a, b).item<double>(), moment_discrepancy(points(a), points(b)),
              1e-4);
  EXPECT_NEAR(latent_discrepancy(a, a).item<double>(), 0, 1e-4);
}

TEST(LatentDiscrepancy, HasASlopeWhereTheSamplesAreEqual) {
  auto a = torch::rand({8, 2}, torch::requires_grad());
  latent_discrepancy(a, a.detach()).backward();
  EXPECT_TRUE(torch::isfinite(a.grad()).all().item<bool>());
}

TEST(PublishedConfig, HasThePublishedShape) {
  Config config;
  config.layers = 11;
  config.feed_forward = 2048;
  config.flatten = 716;
  config.embedding = {985, 985, 985};
  config.embedding_width = 69;
  config.device = {128, 128, 128};
  config.decoder = {930, 930, 930};
  const auto network = make_network(config, 5);
  std::int64_t parameters = 0;
  for (const auto& p : network->parameters()) parameters += p.numel();
  // 11 layers of 4 * 176^2 + 2 * 176 * 2048 and biases are 9.3 million of them.
  EXPECT_GT(parameters, 12'000'000);
  EXPECT_LT(parameters, 15'000'000);
}

}  // namespace
}  // namespace sluice::predictor
