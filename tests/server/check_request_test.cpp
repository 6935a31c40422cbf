// What a client sends is checked before a model sees it.
#include "server/requests/check_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/server/fake_model.hpp"

namespace sluice::server {
namespace {

/// Looks its input up in a table of 100 rows.
class Lookup : public FakeModel {
 public:
  explicit Lookup(Stage& stage) : FakeModel("lookup", 1, stage) {}
  const std::vector<engine::TensorSpec>& inputs() const override { return inputs_; }

 private:
  std::vector<engine::TensorSpec> inputs_{{"ids", engine::DataType::kInt64, {2}, 100}};
};

// Prevents: an id that reads outside of a table, and costs all models their GPU context.
TEST(CheckRequest, RefusesIdsThatTheModelDoesNotHave) {
  Stage stage;
  const Lookup model(stage);
  const auto check_ids = [&](std::array<std::int64_t, 4> ids) {
    Request request;
    request.inputs.push_back(
        {"ids", engine::DataType::kInt64, {2, 2}, std::as_bytes(std::span(ids))});
    std::size_t items = 0;
    return check_request(model, 2, request, items);
  };
  EXPECT_TRUE(check_ids({0, 99, 0, 99}).ok());
  const Status status = check_ids({0, 1, 2, 100});
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_EQ(status.message, "input 'ids': found id 100, allowed: 0 to 99");
}

/// Takes one image, without a batch dimension.
class OneImage : public FakeModel {
 public:
  explicit OneImage(Stage& stage) : FakeModel("one", 1, stage) {}
  const std::vector<engine::TensorSpec>& inputs() const override { return inputs_; }
  bool batched() const override { return false; }

 private:
  std::vector<engine::TensorSpec> inputs_{{"image", engine::DataType::kUint8, {3, -1}}};
};

// Prevents: the first side of a tensor is taken for the number of its items.
TEST(CheckRequest, AModelWithoutABatchDimensionTakesOneItem) {
  Stage stage;
  const OneImage model(stage);
  const std::array<std::byte, 6> data{};
  const auto check_shape = [&](std::vector<std::int64_t> shape, std::size_t& items) {
    Request request;
    request.inputs.push_back({"image", engine::DataType::kUint8, std::move(shape), data});
    return check_request(model, 1, request, items);
  };
  std::size_t items = 0;
  EXPECT_TRUE(check_shape({3, 2}, items).ok());
  EXPECT_EQ(items, 1U);
  const Status status = check_shape({1, 3, 2}, items);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_EQ(status.message, "input 'image': found shape [1,3,2], expected [3,-1]");
}

}  // namespace
}  // namespace sluice::server
