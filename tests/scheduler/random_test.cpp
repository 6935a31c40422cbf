// Random operations on the queue. Prevents: a task is lost, runs twice, or overtakes one of its own
// model, whatever happens to the queue meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/scheduler/tasks.hpp"

namespace sluice::scheduler {
namespace {

class RandomOperations : public testing::TestWithParam<Policy> {
 protected:
  static constexpr std::uint32_t kModels = 4;

  std::uint64_t upto(std::uint64_t max) {
    return std::uniform_int_distribution<std::uint64_t>(0, max)(random_);
  }

  void insert() {
    std::vector<std::uint64_t> blocks(upto(3));
    for (std::uint64_t& each : blocks) each = 1 + upto(50);
    Task made = task(inserted_, static_cast<std::uint32_t>(upto(kModels - 1)), blocks,
                     upto(2) == 0 ? kNoDeadline : now_ + upto(400));
    made.arrival_ns = now_;
    made.whole_ns = 1 + upto(150);
    made.limit_ns = 1 + upto(150);
    state_[inserted_] = {made.model, std::max<std::size_t>(1, blocks.size()), 0, false};
    queue_.insert(made, now_);
    ++inserted_;
  }

  void begin() {
    const auto step = queue_.begin(now_);
    const bool runs =
        std::ranges::any_of(state_, [](const auto& each) { return each.second.runs; });
    EXPECT_TRUE(step || runs || state_.empty()) << "a task waits for nothing";
    if (!step) return;
    ASSERT_TRUE(state_.contains(step->task)) << "a task that is done, removed or unknown";
    State& state = state_[step->task];
    EXPECT_FALSE(state.runs);
    EXPECT_EQ(step->model, state.model);
    EXPECT_EQ(step->first_block, state.next_block) << "not in the order of the blocks";
    EXPECT_TRUE(step->blocks == 1 || (step->first_block == 0 && step->blocks == state.blocks));
    if (step->first_block == 0) {
      for (const auto& [id, other] : state_) {
        const bool earlier = id < step->task && other.model == state.model;
        EXPECT_FALSE(earlier && other.next_block == 0) << step->task << " overtakes " << id;
      }
    }
    state.next_block += step->blocks;
    state.runs = true;
  }

  void end() {
    for (auto& [id, state] : state_) {
      if (!state.runs) continue;
      queue_.end(id, now_);
      state.runs = false;
      if (state.next_block == state.blocks) state_.erase(id);
      return;
    }
  }

  void remove() {
    const std::uint64_t id = upto(inserted_);
    const auto known = state_.find(id);
    const bool may = known != state_.end() && !known->second.runs;
    EXPECT_EQ(queue_.remove(id), may);
    if (may) state_.erase(id);
  }

  void check_views() {
    EXPECT_EQ(queue_.size(), state_.size());
    EXPECT_GE(queue_.completion_ns(task(inserted_, 1, {5}, now_ + upto(100)), now_), 5U);
  }

  struct State {
    std::uint32_t model = 0;
    std::size_t blocks = 0;
    std::size_t next_block = 0;
    bool runs = false;
  };
  std::mt19937_64 random_{3};
  std::uint64_t now_ = 0;
  std::uint64_t inserted_ = 0;
  std::map<std::uint64_t, State> state_;  ///< What is in the queue, by id.
  Queue queue_{GetParam()};
};

TEST_P(RandomOperations, KeepEveryTaskAndItsOrder) {
  for (std::uint32_t model = 0; model < kModels; ++model) queue_.add_model(model, 1 + model % 2);
  for (int run = 0; run < 30'000; ++run) {
    now_ += upto(20);
    switch (upto(9)) {
      case 0:
      case 1:
      case 2:
        if (state_.size() < 30) insert();
        break;
      case 3:
        remove();
        break;
      case 4:
        if (upto(20) == 0) queue_.set_policy(kPolicies[upto(kPolicies.size() - 1)], now_);
        break;
      case 5:
      case 6:
        end();
        break;
      case 7:
        check_views();
        break;
      default:
        begin();
    }
    ASSERT_FALSE(HasFailure()) << "operation " << run;
  }
  for (int run = 0; run < 1'000 && !state_.empty(); ++run) {
    begin();
    end();
  }
  EXPECT_TRUE(state_.empty()) << "a task never ran";
  EXPECT_TRUE(queue_.empty());
}

INSTANTIATE_TEST_SUITE_P(All, RandomOperations, testing::ValuesIn(kPolicies),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace sluice::scheduler
