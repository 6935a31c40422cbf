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

}  // namespace
}  // namespace sluice::server
