// Models whose weights leave and come back compute the same bits. On the CPU, with a driver whose
// device memory is memory of this process: memory that has been given back cannot be read.
#include <gmock/gmock.h>

#include "engine/torch/direct_model.hpp"
#include "engine/torch/load_parts.hpp"
#include "tests/engine/memory/fake_driver.hpp"
#include "tests/engine/torch/served_fixture.hpp"

namespace sluice::engine {
namespace {

using test::begin;
using test::Bytes;
using test::bytes_of;
using test::FakeDriver;
using test::Input;
using test::run_blocks;

class TorchWeightsTest : public test::ServedTest, public testing::WithParamInterface<Placement> {
 protected:
  /// Two cuts in a model's middle.
  static std::vector<std::size_t> two_cuts(const std::string& model) {
    const auto all = cuts_of(model);
    return {all.at(all.size() / 3), all.at(2 * all.size() / 3)};
  }
  [[nodiscard]] std::unique_ptr<ServedModel> make(const std::string& model,
                                                  const std::vector<std::size_t>& cuts) const {
    const c10::InferenceMode inference;
    const StoredModel found = stored(model);
    const c10::Device cpu(c10::kCPU);
    const auto graph = load_graph(found, cpu);
    auto weights = std::make_shared<TorchWeights>(driver_.context(), GetParam(), cpu, *graph, cuts,
                                                  model + std::to_string(cuts.size()));
    ModelParts parts = script_parts(graph, found, cpu, {std::nullopt, 2, cuts});
    parts.weights = std::move(weights);
    return direct_model(std::move(parts));
  }
  /// What the model answers with weights that stay.
  static Bytes wanted(const std::string& model, const std::vector<Input>& input) {
    return run_blocks(*load(model, 2), input);
  }

  FakeDriver driver_;
};
INSTANTIATE_TEST_SUITE_P(Both, TorchWeightsTest,
                         testing::Values(Placement::kFixed, Placement::kAnywhere));

TEST_P(TorchWeightsTest, AnswersAreTheSameToTheBitAfterEachLoad) {
  for (const std::string name : {"resnet18", "bert_tiny", "residual"}) {
    const auto model = make(name, two_cuts(name));
    const auto other = make("residual", {});
    const std::vector<Input> input{Input(model->inputs()[0], 2, 3)};
    const Bytes right = wanted(name, input);
    EXPECT_TRUE(run_blocks(*model, input) == right) << name;
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t before = driver_.held_bytes();
      model->weights()->evict();
      EXPECT_EQ(driver_.held_bytes(), before - model->weights()->bytes());
      other->weights()->evict();
      other->weights()->load();
      model->weights()->load();
      EXPECT_TRUE(run_blocks(*model, input) == right) << name;
    }
  }
}

TEST_P(TorchWeightsTest, ABlockNeedsOnlyTheWeightsUpToIt) {
  for (const std::string name : {"resnet18", "bert_tiny"}) {
    const auto model = make(name, two_cuts(name));
    const std::vector<Input> input{Input(model->inputs()[0], 1, 5)};
    const Bytes right = wanted(name, input);
    model->weights()->evict();
    driver_.hold_copies();
    model->weights()->load();
    const auto batch = begin(*model, input);
    for (std::size_t block = 0; block < 3; ++block) {
      EXPECT_EQ(model->weights()->loaded_blocks(), block);
      driver_.let_copies(1);
      EXPECT_EQ(model->weights()->loaded_blocks(), block + 1);
      batch->launch(block, 1);
    }
    EXPECT_TRUE(bytes_of(*batch) == right) << name;
    EXPECT_EQ(driver_.waits(), 0);
    driver_.let_copies(100);
  }
}

TEST_P(TorchWeightsTest, TheOldTensorsEnd) {
  const c10::InferenceMode inference;
  const StoredModel found = stored("resnet18");
  const c10::Device cpu(c10::kCPU);
  const auto graph = load_graph(found, cpu);
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> old;
  std::uint64_t bytes = 0;
  for (const GraphConstant& constant : graph->constants()) {
    old.push_back(constant.tensor().storage().getWeakStorageImpl());
    bytes += constant.tensor().nbytes();
  }
  const TorchWeights weights(driver_.context(), GetParam(), cpu, *graph, std::vector<std::size_t>{},
                             "old");
  std::size_t alive = 0;
  for (const auto& each : old) alive += each.expired() ? 0 : 1;
  EXPECT_EQ(alive, 0U) << "of " << old.size();
  // Weights of 46.8 MB; not two copies, and not a few of them.
  EXPECT_GE(weights.bytes(), bytes);
  EXPECT_LE(weights.bytes(), bytes + bytes / 50 + 2 * FakeDriver::kGranularity);
  EXPECT_GT(bytes, 40'000'000U);
}

TEST_P(TorchWeightsTest, WithoutWeightsNothingRuns) {
  const auto model = make("residual", {});
  model->weights()->evict();
  EXPECT_THROW(run_blocks(*model, {Input(model->inputs()[0], 1, 1)}), base::RunError);
}

}  // namespace
}  // namespace sluice::engine
