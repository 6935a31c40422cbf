#include "engine/block_times.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sluice::engine {
namespace {

using std::chrono::milliseconds;

/// Its second block takes longer than its first, and the first uses of both take very long.
class SlowModel : public ServedModel {
 public:
  [[nodiscard]] std::string describe() const override { return "slow"; }
  [[nodiscard]] const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  [[nodiscard]] const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  [[nodiscard]] std::size_t blocks() const override { return 2; }
  [[nodiscard]] std::unique_ptr<Batch> begin(
      std::span<const std::vector<Tensor>> requests) override;

  std::size_t items_ = 0;
  int batches_ = 0;
  std::vector<SlowModel*>* order_ = nullptr;  ///< Of the batches of several models.

 private:
  std::vector<TensorSpec> inputs_{{"INPUT__0", DataType::kFp32, {3, -1}}};
  std::vector<TensorSpec> outputs_;
};

class SlowBatch : public Batch {
 public:
  explicit SlowBatch(bool first) : first_(first) {}
  void launch(std::size_t first, std::size_t count) override {
    EXPECT_EQ(first, next_);
    EXPECT_EQ(count, 1U);
    ++next_;
    done_at_ = std::chrono::steady_clock::now() +
               (first_ ? milliseconds(200) : milliseconds(first == 0 ? 2 : 12));
  }
  [[nodiscard]] bool done() override { return std::chrono::steady_clock::now() >= done_at_; }
  [[nodiscard]] std::vector<Tensor> outputs() override { return {}; }

 private:
  bool first_;
  std::size_t next_ = 0;
  std::chrono::steady_clock::time_point done_at_;
};

std::unique_ptr<Batch> SlowModel::begin(std::span<const std::vector<Tensor>> requests) {
  EXPECT_EQ(requests.size(), 1U);
  const Tensor& input = requests[0].at(0);
  EXPECT_EQ(check_data(input.type, input.shape, input.data), "");
  items_ = static_cast<std::size_t>(input.shape[0]);
  if (order_ != nullptr) order_->push_back(this);
  return std::make_unique<SlowBatch>(batches_++ < 3);
}

TEST(BlockTimes, AreThoseUntilEachBlockIsDone) {
  SlowModel model;
  const auto ms = time_blocks(model, 4, 5);
  EXPECT_EQ(model.items_, 4U);
  EXPECT_EQ(model.batches_, 8) << "three to warm up";
  ASSERT_EQ(ms.size(), 2U);
  // Not the first batches, and not the time of launch() alone.
  EXPECT_GE(ms[0], 2);
  EXPECT_LT(ms[0], 180);
  EXPECT_GE(ms[1], 12);
  EXPECT_LT(ms[1], 180);
  SlowModel again;
  EXPECT_LT(time_blocks(again, 4, 1)[0], 180);
}

TEST(BlockTimes, OfASplitAreMeasuredInTurnWithTheWholeModel) {
  // One after the other, a load that comes or goes would change the times of one of them only.
  SlowModel split;
  SlowModel whole;
  std::vector<SlowModel*> order;
  split.order_ = whole.order_ = &order;
  const SplitTimes times = time_split(split, whole, 4, 2);
  ASSERT_EQ(order.size(), 10U);
  for (std::size_t i = 0; i < order.size(); i += 2) EXPECT_NE(order[i], order[i + 1]);
  ASSERT_EQ(times.ms.size(), 2U);
  EXPECT_GE(times.ms[1], 12);
  EXPECT_GE(times.whole_ms, 2);
}

}  // namespace
}  // namespace sluice::engine
