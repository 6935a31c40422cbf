// What the dispatcher of the server relies on, whatever the policy.
#include "scheduler/queue.hpp"

#include <gtest/gtest.h>

#include "tests/scheduler/tasks.hpp"

namespace sluice::scheduler {
namespace {

constexpr std::array kOneAtATime{Policy::kFifo, Policy::kBnst, Policy::kOyst, Policy::kDlir,
                                 Policy::kEdf};

TEST(Queue, AnEmptyOneHasNoStep) {
  for (const Policy policy : kPolicies) {
    Queue queue(policy);
    EXPECT_EQ(queue.begin(0), std::nullopt);
  }
}

// Prevents: two blocks on the GPU at once, which makes every estimate and every measured time
// wrong.
TEST(Queue, RunsOneStepAtATime) {
  for (const Policy policy : kOneAtATime) {
    Queue queue(policy);
    queue.insert(task(1, 1, {10}), 0);
    queue.insert(task(2, 2, {10}), 0);
    const auto first = queue.begin(0);
    ASSERT_TRUE(first);
    EXPECT_EQ(queue.begin(5), std::nullopt);
    queue.end(first->task, 10);
    EXPECT_TRUE(queue.begin(10)) << to_string(policy);
  }
}

TEST(Queue, ParallerRunsEveryInstanceOfEveryModelAtOnce) {
  Queue queue(Policy::kParaller);
  queue.add_model(1, 2);
  queue.add_model(2, 1);
  for (const std::uint64_t id : {1, 2, 3}) queue.insert(task(id, 1, {10, 10}), 0);
  for (const std::uint64_t id : {4, 5}) queue.insert(task(id, 2, {10}), 0);
  EXPECT_EQ(queue.begin(0), (Step{1, 1, 0, 2, 20}));
  EXPECT_EQ(queue.begin(0)->task, 2U);
  EXPECT_EQ(queue.begin(0)->task, 4U);
  EXPECT_EQ(queue.begin(0), std::nullopt);
  queue.end(2, 20);
  EXPECT_EQ(queue.begin(20)->task, 3U);
  EXPECT_EQ(queue.begin(20), std::nullopt);
}

// Prevents: a model that was unloaded or never announced blocks its tasks.
TEST(Queue, ParallerRunsOneTaskOfAnUnknownModel) {
  Queue queue(Policy::kParaller);
  queue.add_model(1, 2);
  queue.insert(task(1, 1, {10}), 0);
  queue.insert(task(2, 1, {10}), 0);
  queue.remove_model(1);
  EXPECT_EQ(queue.begin(0)->task, 1U);
  EXPECT_EQ(queue.begin(0), std::nullopt);
}

TEST(Queue, AModelWithoutBlocksRunsWhole) {
  for (const Policy policy : kPolicies) {
    Queue queue(policy);
    Task whole = task(1, 1, {});
    whole.whole_ns = 30;
    queue.insert(whole, 0);
    EXPECT_EQ(queue.begin(0), (Step{1, 1, 0, 1, 30})) << to_string(policy);
    queue.end(1, 30);
    EXPECT_TRUE(queue.empty());
  }
}

TEST(Queue, RunsWholeInOneStepOrBlockByBlock) {
  Task split = task(1, 1, {10, 12});
  split.whole_ns = 20;
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kParaller}) {
    Queue queue(policy);
    queue.insert(split, 0);
    EXPECT_EQ(run_all(queue), (std::vector<Step>{{1, 1, 0, 2, 20}})) << to_string(policy);
  }
  Queue queue(Policy::kOyst);
  queue.insert(split, 0);
  EXPECT_EQ(run_all(queue), (std::vector<Step>{{1, 1, 0, 1, 10}, {1, 1, 1, 1, 12}}));
}

TEST(Queue, ANewcomerThatBecomesFirstRunsAtTheNextBlockBoundary) {
  for (const Policy policy : {Policy::kOyst, Policy::kDlir, Policy::kEdf}) {
    Queue queue(policy);
    queue.add_model(1);
    queue.add_model(2);
    queue.insert(task(1, 1, {50, 50, 50}, 1000), 0);
    EXPECT_EQ(queue.begin(0)->blocks, 1U);
    queue.insert(task(2, 2, {10}, 70), 20);
    EXPECT_EQ(queue.begin(20), std::nullopt);
    queue.end(1, 50);
    EXPECT_EQ(queue.begin(50)->task, 2U) << to_string(policy);
    queue.end(2, 60);
    EXPECT_EQ(queue.begin(60), (Step{1, 1, 1, 1, 50})) << to_string(policy);
  }
}

TEST(Queue, RemovesWhatDoesNotRun) {
  for (const Policy policy : kOneAtATime) {
    Queue queue(policy);
    queue.insert(task(1, 1, {10, 10}), 0);
    queue.insert(task(2, 1, {10, 10}), 0);
    EXPECT_TRUE(queue.remove(2));
    EXPECT_FALSE(queue.remove(2));
    EXPECT_FALSE(queue.remove(3));
    ASSERT_TRUE(queue.begin(0));
    // The GPU still works on it: its memory may not be given away.
    EXPECT_FALSE(queue.remove(1));
    queue.end(1, 10);
    EXPECT_EQ(queue.remove(1), policy == Policy::kOyst || policy == Policy::kEdf);
    EXPECT_TRUE(queue.empty());
  }
}

TEST(Queue, TheBatchOfATaskGrowsUntilItBegins) {
  for (const Policy policy : kOneAtATime) {
    Queue queue(policy);
    for (const std::uint64_t id : {1, 2, 3}) queue.insert(task(id, 1, {10, 10}, 100 + id), 0);
    queue.insert(task(4, 2, {200}), 0);
    Task batch = task(1, 1, {15, 15}, 101);
    batch.whole_ns = 30;
    EXPECT_TRUE(queue.update(batch));
    EXPECT_TRUE(queue.remove(2));
    const auto step = queue.begin(0);
    EXPECT_EQ(step->task, 1U);
    EXPECT_EQ(step->expected_ns, step->blocks * 15) << to_string(policy);
    EXPECT_FALSE(queue.update(batch)) << "of a task that has begun";
    batch.id = 9;
    EXPECT_FALSE(queue.update(batch)) << "of no task";
  }
}

TEST(Queue, SaysWhenATaskWouldBeComplete) {
  const Task newcomer = task(9, 9, {10, 10}, 60);
  const std::vector<std::pair<Policy, std::uint64_t>> expected{
      {Policy::kFifo, 20 + 50 + 30 + 20},      // all that waits
      {Policy::kParaller, 20 + 50 + 30 + 20},  // all, if the GPU is shared evenly
      {Policy::kBnst, 20 + 20},                // the shortest is first
      {Policy::kEdf, 20 + 30 + 20},            // after the earlier deadline
  };
  for (const auto& [policy, ns] : expected) {
    Queue queue(policy);
    for (std::uint32_t model = 1; model <= 3; ++model) queue.add_model(model);
    queue.insert(task(1, 1, {25}), 0);
    ASSERT_TRUE(queue.begin(100));
    queue.insert(task(2, 2, {50}, 1000), 100);
    queue.insert(task(3, 3, {30}, 160), 100);
    Task late = newcomer;
    late.deadline_ns = 180;
    if (policy == Policy::kParaller) {
      EXPECT_EQ(queue.completion_ns(late, 105), ns);
      continue;
    }
    EXPECT_EQ(queue.completion_ns(late, 105), ns) << to_string(policy);
    EXPECT_EQ(queue.size(), 3U) << "asking inserts nothing";
  }
}

// Prevents: an estimate that wraps around because the running step takes longer than expected.
TEST(Queue, AStepThatTakesTooLongHasNothingLeft) {
  Queue queue(Policy::kFifo);
  queue.insert(task(1, 1, {25}), 0);
  ASSERT_TRUE(queue.begin(0));
  EXPECT_EQ(queue.completion_ns(task(2, 2, {10}), 1000), 10U);
}

TEST(Queue, ChangesThePolicyWhileTasksWaitAndRun) {
  Queue queue(Policy::kOyst);
  queue.insert(task(1, 1, {50, 50}, 900), 0);
  ASSERT_EQ(queue.begin(0)->blocks, 1U);
  queue.insert(task(2, 2, {80}, 700), 0);
  queue.insert(task(3, 3, {10}, 800), 0);
  queue.set_policy(Policy::kFifo, 10);
  EXPECT_EQ(queue.policy(), Policy::kFifo);
  EXPECT_EQ(queue.begin(10), std::nullopt) << "the step runs on";
  queue.end(1, 50);
  EXPECT_EQ(Queue(queue).begin(50)->task, 1U) << "first come";
  queue.set_policy(Policy::kEdf, 50);
  EXPECT_EQ(Queue(queue).begin(50)->task, 2U) << "earliest deadline";
  queue.set_policy(Policy::kBnst, 50);
  EXPECT_EQ(Queue(queue).begin(50)->task, 3U) << "shortest";
  queue.set_policy(Policy::kFifo, 50);
  EXPECT_EQ(queue.begin(50), (Step{1, 1, 1, 1, 50})) << "begun in blocks, goes on in blocks";
}

}  // namespace
}  // namespace sluice::scheduler
