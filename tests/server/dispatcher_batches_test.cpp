// Which requests run as one batch, and in which order: none is lost, and none gets the answer of
// another.
#include "tests/server/dispatcher_test.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;

TEST_F(DispatcherTest, RequestsThatWaitRunAsOneBatchAndGetTheirOwnParts) {
  start();
  const auto a = add(model("a", 4));
  auto first = ask(a);
  auto second = ask(a, {.values = {10, 20}});
  auto two_items = ask(a, {.values = {30, 40, 50, 60}});
  advance_ms(20);
  EXPECT_THAT(first.now().values, ElementsAre(2, 3));
  EXPECT_THAT(second.now().values, ElementsAre(11, 21));
  EXPECT_THAT(two_items.now().values, ElementsAre(31, 41, 51, 61));
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1", "a[3] 0+1"));
}

TEST_F(DispatcherTest, ABatchHasNoMoreItemsThanTheModelTakes) {
  start();
  const auto a = add(model("a", 2));
  for (int i = 0; i < 4; ++i) ask(a);
  advance_ms(30);
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1", "a[2] 0+1", "a[1] 0+1"));
}

TEST_F(DispatcherTest, AWaitForAFullBatchEndsAtItsDelay) {
  start();
  ModelConfig config = model("a", 2);
  config.max_delay_us = 20'000;
  const auto a = add(config);
  ask(a);
  advance_ms(19);
  EXPECT_TRUE(steps().empty());
  advance_ms(1);
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1"));
  advance_ms(10);
  ask(a);
  ask(a);
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1", "a[2] 0+1")) << "a full batch waits no longer";
}

TEST_F(DispatcherTest, ABatchIsNotHeldBeyondADeadline) {
  start();
  ModelConfig config = model("a", 2);
  config.max_delay_us = 5'000'000;
  const auto a = add(config);
  auto urgent = ask(a, {.deadline_ms = 100});
  // Twice its 10 ms, and 2 ms, before the deadline.
  advance_ms(77);
  EXPECT_TRUE(steps().empty());
  advance_ms(1);
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1"));
  advance_ms(10);
  EXPECT_TRUE(urgent.now().status.ok());
}

TEST_F(DispatcherTest, RequestsOfAModelRunInOrderAlsoWhenTheyAreHeld) {
  start();
  ModelConfig config = model("a", 4);
  config.max_delay_us = 5'000'000;
  const auto a = add(config);
  ask(a, {.values = {1, 2, 3, 4, 5, 6}});
  ask(a, {.values = {1, 2, 3, 4, 5, 6, 7, 8}});
  advance_ms(20);
  EXPECT_THAT(steps(), ElementsAre("a[3] 0+1", "a[4] 0+1"));
}

// Prevents: a priority that is read and has no effect, or that reorders requests of equal priority.
TEST_F(DispatcherTest, WithinAModelAHigherPriorityGoesFirst) {
  start();
  std::vector<std::uint64_t> order;
  answered_ = [&](const Pending& pending, const Status&) { order.push_back(pending.id); };
  for (const std::size_t batch_size : {1, 2}) {
    const auto a = add(model("a", batch_size));
    stage_.forget_steps();
    order.clear();
    next_request_ = 0;
    ask(a);
    for (const std::uint32_t priority : {0, 2, 0, 1, 2, 1}) ask(a, {.priority = priority});
    advance_ms(100);
    EXPECT_THAT(order, ElementsAre(0, 4, 6, 2, 5, 1, 3));
    EXPECT_EQ(steps().size(), 1 + 6 / batch_size) << "the batches stay full";
  }
}

// Prevents: requests that are lost, or batches that are too large, when batches are formed anew.
TEST_F(DispatcherTest, PrioritiesKeepBatchesOfSeveralSizesWhole) {
  start();
  ModelConfig config = model("a", 4);
  config.max_delay_us = 30'000;
  const auto a = add(config);
  ask(a);
  std::vector<Asked> all;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 60; ++i) {
    const std::size_t items = 1 + i * 7 % 4;
    all.push_back(ask(a, {.values = std::vector<float>(2 * items, static_cast<float>(i)),
                          .priority = static_cast<std::uint32_t>(i * 5 % 4)}));
    expected.emplace_back(2 * items, static_cast<float>(i + 1));
    if (i % 9 == 0) dispatcher_->cancel(next_request_ - 1);
    if (i % 8 == 0) advance_ms(7);
  }
  advance_ms(1000);
  int cancelled = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Answer answer = all[i].now();
    if (answer.status.code == Code::kCancelled) {
      ++cancelled;
      continue;
    }
    EXPECT_TRUE(answer.status.ok()) << answer.status.message;
    EXPECT_EQ(answer.values, expected[i]) << i;
  }
  EXPECT_EQ(cancelled, 7);
  EXPECT_EQ(a->waiting, 0U);
  for (const std::string& step : steps()) EXPECT_LE(step, "a[4] 0+1");
}

// Prevents: an urgent request that is refused because of a queue that it need not wait for.
TEST_F(DispatcherTest, APriorityIsEstimatedAtItsPlace) {
  start();
  const auto a = add(model("a"));
  std::vector<Asked> others;
  for (int i = 0; i < 6; ++i) others.push_back(ask(a));
  EXPECT_EQ(ask(a, {.deadline_ms = 35}).now().status.code, Code::kResourceExhausted);
  auto urgent = ask(a, {.deadline_ms = 35, .priority = 1});
  advance_ms(20);
  EXPECT_TRUE(urgent.now().status.ok());
  advance_ms(50);
  for (const Asked& each : others) EXPECT_TRUE(each.now().status.ok());
}

TEST_F(DispatcherTest, ParallerRunsInstancesAtTheSameTime) {
  DispatcherOptions options;
  options.policy = scheduler::Policy::kParaller;
  start(options);
  ModelConfig config = model("a");
  config.num_worker = 2;
  const auto a = add(config);
  for (int i = 0; i < 3; ++i) ask(a);
  EXPECT_EQ(steps().size(), 2U) << "a third step needs a third instance";
  advance_ms(10);
  EXPECT_EQ(steps().size(), 3U);
}

// Prevents: statistics, records and an access log with a time that is missing.
TEST_F(DispatcherTest, AnAnswerHasTheTimesOfItsRequest) {
  start();
  RequestTimes times;
  answered_ = [&](const Pending& pending, const Status&) { times = pending.times; };
  const auto a = add(model("a", 1, 2));
  auto first = ask(a);
  const std::uint64_t begin = host_->now_ns();
  auto second = ask(a);
  advance_ms(40);
  EXPECT_TRUE(second.now().status.ok());
  EXPECT_EQ(times.queued_ns, begin);
  EXPECT_EQ(times.begun_ns, begin + 20 * kMs);
  EXPECT_EQ(times.ended_ns, begin + 40 * kMs);
  EXPECT_EQ(times.blocks_ns, 20 * kMs);
  EXPECT_GT(times.input_ns, 0U);
}

// Prevents: steps that end early for requests of a model that is not there any more.
TEST_F(DispatcherTest, TheSchedulerForgetsAModelThatLeaves) {
  DispatcherOptions options;
  options.policy = scheduler::Policy::kDlir;
  start(options);
  const auto stays = add(model("stays", 1, 2));
  const auto removed = add(model("removed"));
  const auto retired = add(model("retired"));
  auto first = ask(stays);
  advance_ms(20);
  EXPECT_TRUE(first.now().status.ok());
  EXPECT_THAT(steps(), ElementsAre("stays[1] 0+1", "stays[1] 1+1"));
  dispatcher_->remove_model(removed);
  dispatcher_->retire_model(retired);
  stage_.forget_steps();
  auto second = ask(stays);
  advance_ms(20);
  EXPECT_TRUE(second.now().status.ok());
  EXPECT_THAT(steps(), ElementsAre("stays[1] 0+2"));
}

TEST_F(DispatcherTest, ADrainHasAnEnd) {
  start();
  auto running = ask(add(model("a")));
  EXPECT_FALSE(dispatcher_->drain(host_->now_ns() + 5 * kMs));
  EXPECT_FALSE(running.answered());
  EXPECT_TRUE(dispatcher_->drain(host_->now_ns() + 5 * kMs));
  EXPECT_TRUE(running.answered());
}

}  // namespace
}  // namespace sluice::server
