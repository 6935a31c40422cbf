// Which requests run as one batch, and in which order: none is lost, and none gets the answer of
// another.
#include <mutex>

#include "tests/server/server_test.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;

TEST_F(ServerTest, RequestsThatWaitRunAsOneBatchAndGetTheirOwnParts) {
  start({model("a", 4)});
  stage_.hold();
  auto first = ask("a");
  stage_.steps(1);
  auto second = ask("a", {10, 20});
  auto two_items = ask("a", {30, 40, 50, 60});
  stage_.release();
  first.wait();
  EXPECT_THAT(second.wait().values, ElementsAre(11, 21));
  EXPECT_THAT(two_items.wait().values, ElementsAre(31, 41, 51, 61));
  EXPECT_THAT(stage_.steps(2), ElementsAre("a[1] 0+1", "a[3] 0+1"));
}

// Prevents: two copies of each waiting request in memory, and an answer from memory that is gone.
TEST_F(ServerTest, AStagedRequestNeedsItsOwnMemoryNoMore) {
  start({model("a")});
  stage_.hold();
  ask("a");
  stage_.steps(1);
  stage_.copies_inputs = true;
  auto data = std::make_shared<std::vector<float>>(std::vector<float>{5, 6});
  Request waits = request("a", {0, 0});
  waits.inputs.front().data = std::as_bytes(std::span(*data));
  waits.storage = data;
  auto waiting = ask(std::move(waits));
  EXPECT_EQ(data.use_count(), 1);
  EXPECT_EQ(server_->memory().used(), 2 * sizeof(float)) << "the copy counts";
  data->assign({0, 0});
  stage_.release();
  EXPECT_THAT(waiting.wait().values, ElementsAre(6, 7));
}

TEST_F(ServerTest, ABatchHasNoMoreItemsThanTheModelTakes) {
  start({model("a", 2)});
  stage_.hold();
  std::vector<Asked> asked;
  for (int i = 0; i < 4; ++i) {
    asked.push_back(ask("a"));
    stage_.steps(1);
  }
  stage_.release();
  for (Asked& each : asked) each.wait();
  EXPECT_THAT(stage_.steps(3), ElementsAre("a[1] 0+1", "a[2] 0+1", "a[1] 0+1"));
}

TEST_F(ServerTest, AWaitForAFullBatchEndsAtItsDelay) {
  ModelConfig config = model("a", 2);
  config.max_delay_us = 20'000;
  start({config});
  const std::uint64_t begin = base::monotonic_ns();
  ask("a").wait();
  EXPECT_GE(base::monotonic_ns() - begin, 20'000'000u);
  auto one = ask("a");
  auto two = ask("a");
  two.wait();
  one.wait();
  EXPECT_THAT(stage_.steps(2), ElementsAre("a[1] 0+1", "a[2] 0+1"));
}

TEST_F(ServerTest, ABatchIsNotHeldBeyondADeadline) {
  ModelConfig config = model("a", 2);
  config.max_delay_us = 5'000'000;
  start({config});
  // A busy machine may wake the dispatcher after a deadline, but not each time.
  bool in_time = false;
  for (int i = 0; i < 20 && !in_time; ++i) {
    Request urgent = request("a", {1, 2});
    urgent.deadline_ns = base::monotonic_ns() + 100'000'000;
    in_time = ask(std::move(urgent)).wait().status.ok();
  }
  EXPECT_TRUE(in_time);
}

TEST_F(ServerTest, RequestsOfAModelRunInOrderAlsoWhenTheyAreHeld) {
  ModelConfig config = model("a", 4);
  config.max_delay_us = 5'000'000;
  start({config});
  auto three = ask("a", {1, 2, 3, 4, 5, 6});
  auto four = ask("a", {1, 2, 3, 4, 5, 6, 7, 8});
  three.wait();
  four.wait();
  EXPECT_THAT(stage_.steps(2), ElementsAre("a[3] 0+1", "a[4] 0+1"));
}

/// The first values of the requests in the order of their answers.
class Order {
 public:
  Done done(float value) {
    return [this, value](const Status& status, const Response&) {
      EXPECT_TRUE(status.ok()) << status.message;
      const std::lock_guard lock(mutex_);
      values_.push_back(value);
    };
  }
  std::vector<float> wait(std::size_t count) {
    for (int i = 0; i < 10'000; ++i) {
      const std::lock_guard lock(mutex_);
      if (values_.size() >= count) return values_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<float> values_;
};

// Prevents: a priority that is read and has no effect, or that reorders requests of equal priority.
TEST_F(ServerTest, WithinAModelAHigherPriorityGoesFirst) {
  for (const std::size_t batch_size : {1, 2}) {
    start({model("a", batch_size)});
    stage_.hold();
    auto running = ask("a");
    stage_.steps(1);
    Order order;
    const std::vector<std::uint32_t> priorities{0, 2, 0, 1, 2, 1};
    for (std::size_t i = 0; i < priorities.size(); ++i) {
      Request made = request("a", {static_cast<float>(i), 0});
      made.priority = priorities[i];
      server_->infer(std::move(made), order.done(static_cast<float>(i)));
    }
    EXPECT_EQ(server_->status()["models"][0]["waiting"], priorities.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stage_.release();
    EXPECT_THAT(order.wait(6), ElementsAre(3, 5, 1, 4, 0, 2));
    EXPECT_TRUE(running.wait().status.ok());
    const std::size_t batches = 1 + priorities.size() / batch_size;
    EXPECT_EQ(stage_.steps(batches).size(), batches) << "the batches stay full";
  }
}

// Prevents: requests that are lost, or batches that are too large, when batches are formed anew.
TEST_F(ServerTest, PrioritiesKeepBatchesOfSeveralSizesWhole) {
  ModelConfig config = model("a", 4);
  config.max_delay_us = 30'000;
  start({config});
  std::vector<Asked> all;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 60; ++i) {
    const std::size_t items = 1 + i * 7 % 4;
    Request made = request("a", std::vector<float>(2 * items, static_cast<float>(i)));
    made.priority = static_cast<std::uint32_t>(i * 5 % 4);
    all.push_back(ask(std::move(made)));
    expected.emplace_back(2 * items, static_cast<float>(i + 1));
    if (i % 9 == 0) all.back().cancellation->cancel();
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Answer answer = all[i].wait();
    if (answer.status.code == Code::kCancelled) continue;
    EXPECT_TRUE(answer.status.ok()) << answer.status.message;
    EXPECT_EQ(answer.values, expected[i]) << i;
  }
  EXPECT_EQ(server_->status()["models"][0]["waiting"], 0);
}

// Prevents: an urgent request that is refused because of a queue that it need not wait for.
TEST_F(ServerTest, APriorityIsEstimatedAtItsPlace) {
  stage_.step_time = std::chrono::milliseconds(100);
  start({model("a")});
  auto running = ask("a");
  stage_.steps(1);
  std::vector<Asked> waiting;
  for (int i = 0; i < 5; ++i) waiting.push_back(ask("a"));
  Request urgent = request("a", {1, 2});
  urgent.deadline_ns = base::monotonic_ns() + 350'000'000;
  Request same = request("a", {1, 2});
  same.deadline_ns = urgent.deadline_ns;
  urgent.priority = 1;
  EXPECT_EQ(ask(std::move(same)).wait().status.code, Code::kResourceExhausted);
  EXPECT_TRUE(ask(std::move(urgent)).wait().status.ok());
  stage_.step_time = std::chrono::milliseconds(0);
  for (Asked& each : waiting) EXPECT_TRUE(each.wait().status.ok());
  running.wait();
}

}  // namespace
}  // namespace sluice::server
