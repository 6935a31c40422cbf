#include <gmock/gmock.h>

#include <cstring>

#include "engine/torch/batch_tensors.hpp"
#include "tests/engine/torch/served_fixture.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

using test::begin;
using test::Bytes;
using test::Input;
using test::run_blocks;
using testing::HasSubstr;

/// What `call` throws, as text.
template <class Error, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<float> floats(const Bytes& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

void expect_near(const Bytes& bytes, const Bytes& wanted) {
  const auto numbers = floats(bytes);
  ASSERT_EQ(bytes.size(), wanted.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_NEAR(numbers[i], floats(wanted)[i], 1e-5) << i;
  }
}

class ServedTorch : public test::ServedTest {
 protected:
  /// The error for a request whose last id is this one; empty if it is taken.
  static std::string refusal_of_id(ServedModel& model, std::int64_t id) {
    Input input(model.inputs()[0], 2, 1);
    Bytes data(input.tensor().data.begin(), input.tensor().data.end());
    std::memcpy(&data[data.size() - sizeof id], &id, sizeof id);
    input.tensor().data = data;
    return refusal(model, input.request());
  }
};

TEST(BatchSizes, AreThePowersOfTwoAndTheFullBatch) {
  // A full batch must not be run as two.
  EXPECT_THAT(batch_sizes(1), testing::ElementsAre(1));
  EXPECT_THAT(batch_sizes(6), testing::ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(batch_sizes(16), testing::ElementsAre(1, 2, 4, 8, 16));
}

TEST_F(ServedTorch, WholeModelComputesWhatTorchScriptComputes) {
  for (const std::string name : {"residual", "unfrozen", "bert_tiny", "pair"}) {
    const auto model = load(name);
    const Bytes found = run_blocks(*model, {Input(model->inputs()[0], 2, file(name, "input.bin"))});
    const std::string wanted = test::read_file(file(name, "output.bin"));
    ASSERT_EQ(found.size(), wanted.size()) << name;
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size()), 0) << name;
  }
}

TEST_F(ServedTorch, BatchedItemsAreTheItemsAlone) {
  for (const std::string name : {"residual", "bert_tiny"}) {
    const auto model = load(name, 4, {cuts_of(name)[2]});
    const TensorSpec& spec = model->inputs()[0];
    const Input one(spec, 1, 1);
    const Input two(spec, 2, 2);
    const auto batch = begin(*model, {one, two});
    batch->launch(0, 2);
    const auto together = batch->outputs();
    const auto alone_one = begin(*model, {one});
    const auto alone_two = begin(*model, {two});
    alone_one->launch(0, 2);
    alone_two->launch(0, 2);
    for (std::size_t i = 0; i < together.size(); ++i) {
      EXPECT_EQ(together[i].shape[0], 3);
      const std::size_t item = together[i].data.size() / 3;
      const auto bytes = [](std::span<const std::byte> data) {
        return Bytes(data.begin(), data.end());
      };
      expect_near(bytes(together[i].data.first(item)), bytes(alone_one->outputs()[i].data));
      expect_near(bytes(together[i].data.subspan(item)), bytes(alone_two->outputs()[i].data));
    }
  }
}

TEST_F(ServedTorch, NamesAndTypesOfTensors) {
  const auto dictionary = load("residual");
  EXPECT_EQ(dictionary->inputs()[0].name, "INPUT__0");
  EXPECT_EQ(dictionary->inputs()[0].shape, (std::vector<std::int64_t>{3, 16, 16}));
  ASSERT_EQ(dictionary->outputs().size(), 2);
  EXPECT_EQ(dictionary->outputs()[0].name, "out");
  EXPECT_EQ(dictionary->outputs()[0].shape, std::vector<std::int64_t>{5});
  EXPECT_EQ(dictionary->outputs()[1].name, "pooled");
  const auto pair = load("pair");
  ASSERT_EQ(pair->outputs().size(), 2);
  EXPECT_EQ(pair->outputs()[0].name, "OUTPUT__0");
  EXPECT_EQ(pair->outputs()[1].name, "OUTPUT__1");
  EXPECT_EQ(pair->outputs()[1].type, DataType::kInt64);
  EXPECT_TRUE(pair->outputs()[1].shape.empty());
  EXPECT_EQ(load("bert_tiny")->inputs()[0].type, DataType::kInt64);
}

TEST_F(ServedTorch, RefusesRequestsThatDoNotFit) {
  const auto model = load("residual", 2);
  const TensorSpec spec = model->inputs()[0];
  Input fits(spec, 2, 1);
  EXPECT_EQ(refusal(*model, fits.request()), "");

  Input type(spec, 1, 1);
  type.tensor().type = DataType::kInt32;
  EXPECT_THAT(refusal(*model, type.request()), HasSubstr("is INT32 [1, 3, 16, 16]"));
  Input side(spec, 1, 1);
  side.tensor().shape = {1, 3, 8, 32};
  EXPECT_THAT(refusal(*model, side.request()), HasSubstr("takes FP32 [items, 3, 16, 16]"));
  Input rank(spec, 1, 1);
  rank.tensor().shape = {3, 16, 16};
  EXPECT_THAT(refusal(*model, rank.request()), HasSubstr("takes FP32"));
  Input bytes(spec, 1, 1);
  bytes.tensor().data = bytes.tensor().data.first(100);
  EXPECT_THAT(refusal(*model, bytes.request()), HasSubstr("INPUT__0"));
  EXPECT_THAT(refusal(*model, Input(spec, 3, 1).request()), HasSubstr("allowed: 1 to 2"));
  EXPECT_THAT(refusal(*model, Input(spec, 0, 1).request()), HasSubstr("allowed: 1 to 2"));
  EXPECT_THAT(refusal(*model, {}), HasSubstr("takes 1 input, not 0"));
  EXPECT_THROW((void)model->begin({}), base::RunError);
  // Two requests that fit alone.
  EXPECT_THROW((void)begin(*model, {fits, fits}), base::RunError);
}

TEST_F(ServedTorch, RefusesIdsOutsideOfTheSmallestTable) {
  // On a GPU such an id would cost every model of the process its context.
  const auto model = load("lookup", 2);
  EXPECT_EQ(model->inputs()[0].id_end, 1100);
  EXPECT_THAT(refusal_of_id(*model, 1100), HasSubstr("found id 1100, allowed: 0 to 1099"));
  EXPECT_THAT(refusal_of_id(*model, -1), HasSubstr("found id -1"));
  EXPECT_EQ(refusal_of_id(*model, 1099), "");
  EXPECT_EQ(refusal_of_id(*load("bert_tiny"), 30521), "");
  EXPECT_THAT(refusal_of_id(*load("bert_tiny"), 30522), HasSubstr("allowed: 0 to 30521"));
}

TEST_F(ServedTorch, SaysWhenIdsAreUnchecked) {
  const auto model = load("shifted");
  EXPECT_EQ(model->inputs()[0].id_end, std::nullopt);
  EXPECT_THAT(model->describe(), HasSubstr("token ids unchecked"));
  EXPECT_THAT(load("lookup")->describe(), testing::Not(HasSubstr("unchecked")));
  EXPECT_THAT(load("residual")->describe(), testing::Not(HasSubstr("unchecked")));
}

TEST_F(ServedTorch, DetectionModelTakesOneImageOfAnySize) {
  const auto model = load("detector", 1);
  EXPECT_EQ(model->inputs()[0].shape, (std::vector<std::int64_t>{3, -1, -1}));
  ASSERT_EQ(model->outputs().size(), 2);
  EXPECT_EQ(model->outputs()[0].name, "boxes");
  EXPECT_EQ(model->outputs()[0].shape, (std::vector<std::int64_t>{-1, 4}));
  const Input image(model->inputs()[0], 1, 1);
  const auto batch = begin(*model, {image});
  batch->launch(0, 1);
  EXPECT_EQ(batch->outputs()[0].shape, (std::vector<std::int64_t>{1, 24, 4}));
  EXPECT_THAT(error_of<base::RunError>([] { (void)load("detector", 4); }),
              HasSubstr("set its batch size to 1, not 4"));
}

TEST_F(ServedTorch, ModelThatCannotBeBatchedIsRefusedAtLoad) {
  // It would answer for the first of two requests only.
  EXPECT_EQ(load("one_item", 1)->outputs()[0].shape, std::vector<std::int64_t>{4});
  EXPECT_THAT(error_of<base::RunError>([] { (void)load("one_item", 8); }),
              HasSubstr("one_item/model.pt"));
  EXPECT_THAT(error_of<base::RunError>([] { (void)load("two_inputs", 1); }),
              HasSubstr("takes 2 arguments"));
}

TEST_F(ServedTorch, PackageRunsWholeAndPadded) {
  const StoredModel package = stored("classifier", "aoti", 2);
  const auto compiled = load_served(package, {std::nullopt, 2, {}});
  const auto script = load_served(stored("classifier"), {std::nullopt, 2, {}});
  const TensorSpec& spec = compiled->inputs()[0];
  for (const std::size_t items : {2U, 1U}) {
    const Input input(spec, items, 7);
    expect_near(run_blocks(*compiled, {input}), run_blocks(*script, {input}));
  }
  EXPECT_THAT(error_of<base::UsageError>([&] {
                (void)load_served(package, {std::nullopt, 2, {1}});
              }),
              HasSubstr("cannot be split"));
}

TEST_F(ServedTorch, DamagedFileIsOneLine) {
  const test::TempFolder folder;
  StoredModel model = stored("residual");
  model.file = folder.write("model.pt", "not a model");
  const std::string line = error_of<base::RunError>([&] { (void)load_served(model, {}); });
  EXPECT_THAT(line, HasSubstr(model.file));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace sluice::engine
