// Requests that are late, refused or cancelled: they cost the device nothing, and others nothing.
#include "tests/server/server_test.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ServerTest, AnEarlierDeadlineGoesFirstAtABlockBoundary) {
  start({model("long", 1, 3), model("short")});
  stage_.hold();
  auto slow = ask("long");
  stage_.steps(1);
  Request urgent = request("short", {1, 2});
  urgent.deadline_ns = base::monotonic_ns() + 5'000'000'000;
  auto fast = ask(std::move(urgent));
  // Makes sure that the request has been queued before the step ends.
  while (server_->status()["models"][1]["waiting"] != 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  stage_.release();
  EXPECT_TRUE(fast.wait().status.ok());
  const Answer answer = slow.wait();
  // Three blocks, each run once, add 3: the state survived the preemption.
  EXPECT_THAT(answer.values, ElementsAre(4, 5));
}

TEST_F(ServerTest, TheDeadlinePassesInTheQueue) {
  start({model("a"), model("b")});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  Request late = request("b", {1, 2});
  late.deadline_ns = base::monotonic_ns() + 30'000'000;
  auto expired = ask(std::move(late));
  EXPECT_EQ(expired.wait().status.code, Code::kDeadlineExceeded);
  stage_.release();
  running.wait();
  EXPECT_THAT(stage_.steps(1), ElementsAre("a[1] 0+1"))
      << "an expired request costs no device time";
}

// Prevents: a comparison of schedulers in which each answers other requests.
TEST_F(ServerTest, LateRequestsRunIfTheyAreToRun) {
  ServerOptions options;
  options.dispatcher.admit_factor = 0;
  options.dispatcher.run_late = true;
  start({model("a"), model("b")}, options);
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  Request passes_in_the_queue = request("b", {1, 2});
  passes_in_the_queue.deadline_ns = base::monotonic_ns() + 10'000'000;
  auto waited = ask(std::move(passes_in_the_queue));
  Request had_passed = request("a", {1, 2});
  had_passed.deadline_ns = base::monotonic_ns() - 1;
  auto late = ask(std::move(had_passed));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  stage_.release();
  EXPECT_TRUE(running.wait().status.ok());
  EXPECT_TRUE(waited.wait().status.ok());
  EXPECT_TRUE(late.wait().status.ok());
}

TEST_F(ServerTest, ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  constexpr std::uint64_t kMs = 1'000'000;
  stage_.step_time = std::chrono::milliseconds(100);
  start({model("a")});
  const auto with_deadline = [](std::uint64_t ms) {
    Request made = request("a", {1, 2});
    made.deadline_ns = base::monotonic_ns() + ms * kMs;
    return made;
  };
  auto running = ask("a");
  stage_.steps(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // The rest of one execution of 100 ms, and another one.
  const Answer answer = ask(with_deadline(110)).wait();
  EXPECT_EQ(answer.status.code, Code::kResourceExhausted);
  EXPECT_THAT(answer.status.message, HasSubstr("but the answer would take 1"));
  EXPECT_GT(answer.status.retry_after_ms, 0);
  EXPECT_TRUE(ask(with_deadline(5000)).wait().status.ok());
  running.wait();
}

// Prevents: one slow run, after which every request is refused and nothing corrects the estimate.
TEST_F(ServerTest, AnIdleServerRefusesNobody) {
  ModelConfig config = model("a");
  config.slo_ms = 90;
  stage_.step_time = std::chrono::milliseconds(100);
  start({config});
  stage_.step_time = std::chrono::milliseconds(0);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ask("a").wait().status.ok());
}

TEST_F(ServerTest, ARequestThatJoinsABatchIsEstimatedWithIt) {
  stage_.step_time = std::chrono::milliseconds(100);
  start({model("a", 4)});
  auto running = ask("a");
  stage_.steps(1);
  auto first = ask("a");
  Request joins = request("a", {1, 2});
  // The rest of the running step and one batch, not two.
  joins.deadline_ns = base::monotonic_ns() + 280'000'000;
  EXPECT_TRUE(ask(std::move(joins)).wait().status.ok());
  first.wait();
  running.wait();
}

TEST_F(ServerTest, AFullQueueRefuses) {
  ModelConfig config = model("a");
  config.max_queue = 2;
  start({config});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  auto one = ask("a");
  auto two = ask("a");
  const Answer refused = ask("a").wait();
  EXPECT_EQ(refused.status.code, Code::kResourceExhausted);
  EXPECT_THAT(refused.status.message, HasSubstr("max-queue"));
  EXPECT_GT(refused.status.retry_after_ms, 0);
  EXPECT_EQ(records().back()["result"], "resource_exhausted");
  stage_.release();
  EXPECT_TRUE(running.wait().status.ok());
  EXPECT_TRUE(one.wait().status.ok());
  EXPECT_TRUE(two.wait().status.ok());
  EXPECT_TRUE(ask("a").wait().status.ok()) << "there is room again";
}

TEST_F(ServerTest, ACancelledRequestCostsNothing) {
  start({model("a", 4, 2)});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  auto keeps = ask("a", {5, 6});
  auto goes = ask("a", {7, 8});
  goes.cancellation->cancel();
  EXPECT_EQ(goes.wait().status.code, Code::kCancelled);
  running.cancellation->cancel();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(running.answered()) << "the executor may still read its input";
  stage_.release();
  EXPECT_EQ(running.wait().status.code, Code::kCancelled);
  EXPECT_THAT(keeps.wait().values, ElementsAre(7, 8));
  const auto steps = stage_.steps(2);
  EXPECT_THAT(steps.front(), "a[1] 0+1");
  for (const std::string& step : steps) EXPECT_THAT(step, HasSubstr("[1]"));
  EXPECT_LE(steps.size(), 3u) << "the second block of the cancelled request";
  goes.cancellation->cancel();
}

// Prevents: a crash, because a cancelled request freed the input that the executor was reading.
TEST_F(ServerTest, RequestsMayBeCancelledAtAnyTime) {
  start({model("a", 4)});
  for (int i = 0; i < 300; ++i) {
    auto one = ask("a", std::vector<float>(8, 1));
    auto two = ask("a");
    one.cancellation->cancel();
    EXPECT_THAT(one.wait().status.code, testing::AnyOf(Code::kOk, Code::kCancelled));
    EXPECT_TRUE(two.wait().status.ok());
  }
  EXPECT_TRUE(test::eventually([&] { return server_->memory().used() == 0; }));
}

// Prevents: a request that waits between its blocks for as long as others have deadlines to meet.
TEST_F(ServerTest, TheDeadlinePassesBetweenTwoBlocks) {
  start({model("a", 1, 2)});
  stage_.hold();
  Request late = request("a", {1, 2});
  late.deadline_ns = base::monotonic_ns() + 50'000'000;
  auto asked = ask(std::move(late));
  stage_.steps(1);
  Request other = request("a", {1, 2});
  other.deadline_ns = base::monotonic_ns() + 5'000'000'000;
  auto behind = ask(std::move(other));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  stage_.release();
  EXPECT_THAT(asked.wait().status.code, testing::AnyOf(Code::kDeadlineExceeded, Code::kOk));
  EXPECT_TRUE(behind.wait().status.ok());
}

// Prevents: an answer that comes with those of the rest of the batch.
TEST_F(ServerTest, ALateRequestOfABatchIsAnsweredAtTheEndOfItsStep) {
  ServerOptions options;
  options.dispatcher.policy = scheduler::Policy::kOyst;
  ModelConfig config = model("a", 2, 3);
  config.max_delay_us = 10'000'000;
  start({config}, options);
  stage_.hold();
  auto behind = ask("a");
  Request made = request("a", {1, 2});
  made.deadline_ns = base::monotonic_ns() + 50'000'000;
  auto late = ask(std::move(made));
  EXPECT_THAT(stage_.steps(1), ElementsAre("a[2] 0+1"));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  stage_.step_time = std::chrono::milliseconds(500);
  stage_.release();
  EXPECT_EQ(late.wait().status.code, Code::kDeadlineExceeded);
  EXPECT_FALSE(behind.answered());
  EXPECT_LE(stage_.steps(1).size(), 2U) << "the answer comes right after the first step";
  EXPECT_THAT(behind.wait().values, ElementsAre(4, 5));
}

}  // namespace
}  // namespace sluice::server
