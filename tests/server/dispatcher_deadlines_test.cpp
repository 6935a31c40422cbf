// Requests that are late, refused or cancelled: they cost the device nothing, and others nothing.
#include "tests/server/dispatcher_test.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;

TEST_F(DispatcherTest, AnEarlierDeadlineGoesFirstAtABlockBoundary) {
  start();
  const auto slow = add(model("long", 1, 3));
  const auto fast = add(model("short"));
  auto first = ask(slow, {.deadline_ms = 5000});
  advance_ms(5);
  auto urgent = ask(fast, {.deadline_ms = 100});
  advance_ms(100);
  EXPECT_THAT(steps(), ElementsAre("long[1] 0+1", "short[1] 0+1", "long[1] 1+1", "long[1] 2+1"));
  EXPECT_TRUE(urgent.now().status.ok());
  // Three blocks, each run once, add 3: the state survived the preemption.
  EXPECT_THAT(first.now().values, ElementsAre(4, 5));
}

TEST_F(DispatcherTest, TheDeadlinePassesInTheQueue) {
  DispatcherOptions options;
  options.admit_factor = 0;
  start(options);
  const auto a = add(model("a"));
  auto running = ask(a);
  auto late = ask(a, {.deadline_ms = 7});
  advance_ms(6);
  EXPECT_FALSE(late.answered());
  advance_ms(1);
  EXPECT_EQ(late.now().status.code, Code::kDeadlineExceeded);
  EXPECT_FALSE(running.answered()) << "the answer waits for nobody";
  advance_ms(100);
  EXPECT_TRUE(running.now().status.ok());
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1")) << "an expired request costs no device time";
}

// Prevents: a comparison of schedulers in which each answers other requests.
TEST_F(DispatcherTest, LateRequestsRunIfTheyAreToRun) {
  DispatcherOptions options;
  options.admit_factor = 0;
  options.run_late = true;
  start(options);
  const auto a = add(model("a"));
  auto running = ask(a);
  auto passes_in_the_queue = ask(a, {.deadline_ms = 5});
  auto had_passed = ask(a, {.deadline_ms = -1});
  advance_ms(30);
  EXPECT_TRUE(running.now().status.ok());
  EXPECT_TRUE(passes_in_the_queue.now().status.ok());
  EXPECT_TRUE(had_passed.now().status.ok());
}

TEST_F(DispatcherTest, ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  start();
  const auto a = add(model("a"));
  auto running = ask(a);
  advance_ms(2);
  // The rest of one execution of 10 ms, and another one.
  const Answer answer = ask(a, {.deadline_ms = 17}).now();
  EXPECT_EQ(answer.status.code, Code::kResourceExhausted);
  EXPECT_EQ(answer.status.message, "the deadline is in 17.0 ms, but the answer would take 18.0 ms");
  EXPECT_DOUBLE_EQ(answer.status.retry_after_ms, 1);
  auto possible = ask(a, {.deadline_ms = 18});
  advance_ms(18);
  EXPECT_TRUE(possible.now().status.ok());
}

// Prevents: one slow run, after which every request is refused and nothing corrects the estimate.
TEST_F(DispatcherTest, AnIdleServerRefusesNobody) {
  start();
  const auto a = add(model("a"));
  step_ms_ = 0;
  auto hopeful = ask(a, {.deadline_ms = 9});
  advance_ms(1);
  EXPECT_TRUE(hopeful.now().status.ok());
}

TEST_F(DispatcherTest, ARequestThatJoinsABatchIsEstimatedWithIt) {
  start();
  const auto a = add(model("a", 4));
  auto running = ask(a);
  auto first = ask(a);
  // The rest of the running step and one batch, not two.
  auto joins = ask(a, {.deadline_ms = 20});
  advance_ms(20);
  EXPECT_TRUE(joins.now().status.ok());
  EXPECT_TRUE(first.now().status.ok());
}

// Prevents: a refusal because of a batch that it need not join, or a batch that it makes late.
TEST_F(DispatcherTest, ARequestThatWouldMakeABatchLateGetsOneOfItsOwn) {
  start();
  const auto a = add(model("a", 2));
  a->timing.measured(2, std::vector<std::uint64_t>{20 * kMs});
  auto running = ask(a);
  auto first = ask(a, {.deadline_ms = 25});
  auto second = ask(a, {.deadline_ms = 35});
  advance_ms(30);
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1", "a[1] 0+1", "a[1] 0+1"));
  EXPECT_TRUE(first.now().status.ok());
  EXPECT_TRUE(second.now().status.ok());
}

TEST_F(DispatcherTest, ACancelledRequestCostsNothing) {
  start();
  const auto a = add(model("a", 4, 2));
  auto running = ask(a);
  auto keeps = ask(a, {.values = {5, 6}});
  auto goes = ask(a, {.values = {7, 8}});
  dispatcher_->cancel(3);
  EXPECT_EQ(goes.now().status.code, Code::kCancelled);
  dispatcher_->cancel(1);
  EXPECT_FALSE(running.answered()) << "the executor may still read its input";
  advance_ms(100);
  EXPECT_EQ(running.now().status.code, Code::kCancelled);
  EXPECT_THAT(keeps.now().values, ElementsAre(7, 8));
  EXPECT_THAT(steps(), ElementsAre("a[1] 0+1", "a[1] 0+1", "a[1] 1+1"));
  dispatcher_->cancel(3);
}

// Prevents: a batch that goes first for the deadline of a request which it no longer has.
TEST_F(DispatcherTest, ABatchLosesTheDeadlineOfARequestThatLeaves) {
  start();
  const auto a = add(model("a", 2));
  const auto b = add(model("b"));
  ask(b);
  ask(a);
  ask(a, {.deadline_ms = 500});
  ask(b, {.deadline_ms = 1000});
  dispatcher_->cancel(3);
  advance_ms(100);
  EXPECT_THAT(steps(), ElementsAre("b[1] 0+1", "b[1] 0+1", "a[1] 0+1"));
}

// Prevents: a request that waits between its blocks for as long as others have deadlines to meet.
TEST_F(DispatcherTest, TheDeadlinePassesBetweenTwoBlocks) {
  DispatcherOptions options;
  options.admit_factor = 0;
  start(options);
  const auto slow = add(model("long", 1, 2));
  const auto fast = add(model("short"));
  auto late = ask(slow, {.deadline_ms = 18});
  auto before = ask(fast, {.deadline_ms = 17});
  advance_ms(18);
  EXPECT_EQ(late.now().status.code, Code::kDeadlineExceeded);
  EXPECT_FALSE(before.answered()) << "the answer waits for nobody";
  advance_ms(100);
  EXPECT_TRUE(before.now().status.ok());
  EXPECT_THAT(steps(), ElementsAre("long[1] 0+1", "short[1] 0+1"));
}

// Prevents: an answer that comes with those of the rest of the batch.
TEST_F(DispatcherTest, ALateRequestOfABatchIsAnsweredAtTheEndOfItsStep) {
  DispatcherOptions options;
  options.policy = scheduler::Policy::kOyst;
  start(options);
  ModelConfig config = model("a", 2, 3);
  config.max_delay_us = 10'000'000;
  const auto a = add(config);
  auto behind = ask(a);
  auto late = ask(a, {.deadline_ms = 90});
  EXPECT_THAT(steps(), ElementsAre("a[2] 0+1"));
  step_ms_ = 100;
  advance_ms(10);
  advance_ms(100);
  EXPECT_EQ(late.now().status.code, Code::kDeadlineExceeded);
  EXPECT_FALSE(behind.answered());
  advance_ms(100);
  EXPECT_THAT(behind.now().values, ElementsAre(4, 5));
}

class Overload : public DispatcherTest, public testing::WithParamInterface<scheduler::Policy> {};

// Prevents: under overload, device time for requests that nobody waits for any more.
TEST_P(Overload, NothingBeginsLateAndARefusalCostsNothing) {
  DispatcherOptions options;
  options.policy = GetParam();
  start(options);
  step_ms_ = 4;
  const auto a = add(model("a"));
  // A round that is called late must not be what keeps a late request from its step.
  host_->late_ns = 3 * kMs;
  std::map<Code, int> answers;
  std::size_t begun = 0;
  answered_ = [&](const Pending& pending, const Status& status) {
    ++answers[status.code];
    begun += pending.times.begun_ns != 0 ? 1 : 0;
    if (status.ok()) {
      EXPECT_LT(pending.times.begun_ns, pending.deadline_ns);
    } else {
      EXPECT_EQ(pending.times.begun_ns, 0U) << status.message;
    }
  };
  // Twice what it can do, for two seconds. Now and then a step takes longer than anybody knew.
  constexpr int kRequests = 1000;
  for (int i = 0; i < kRequests; ++i) {
    step_ms_ = i % 50 < 5 ? 12 : 4;
    ask(a, {.deadline_ms = 41});
    advance_ms(2);
  }
  advance_ms(100);
  EXPECT_EQ(
      answers[Code::kOk] + answers[Code::kResourceExhausted] + answers[Code::kDeadlineExceeded],
      kRequests);
  EXPECT_GT(answers[Code::kOk], kRequests / 3);
  EXPECT_GT(answers[Code::kResourceExhausted], kRequests / 4);
  EXPECT_GT(answers[Code::kDeadlineExceeded], 0) << "the estimates were too good";
  EXPECT_EQ(steps().size(), begun);
}

INSTANTIATE_TEST_SUITE_P(Policies, Overload, testing::ValuesIn(scheduler::kPolicies),
                         [](const auto& of) { return std::string(to_string(of.param)); });

}  // namespace
}  // namespace sluice::server
