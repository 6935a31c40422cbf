// The server behind its protocols: every request is answered once, whatever happens around it.
#include "server/server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(10);

ModelConfig model(std::string name, std::size_t batch_size = 1, std::size_t blocks = 1) {
  ModelConfig config;
  config.name = std::move(name);
  config.path = config.name;
  config.batch_size = batch_size;
  config.blocks = blocks;
  return config;
}

/// An answer that a test waits for.
struct Answer {
  Status status;
  std::vector<float> values;
  int count = 0;
};

class Asked {
 public:
  Answer wait() {
    EXPECT_EQ(future_.wait_for(kLimit), std::future_status::ready) << "no answer";
    return answer_->count > 0 ? *answer_ : Answer{{Code::kInternal, "no answer"}, {}, 0};
  }
  [[nodiscard]] bool answered() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  Done done() {
    return [answer = answer_, promise = promise_](const Status& status, const Response& response) {
      answer->status = status;
      for (const engine::Tensor& output : response.outputs) {
        const auto* data = reinterpret_cast<const float*>(output.data.data());
        answer->values.assign(data, data + output.data.size() / sizeof(float));
      }
      if (++answer->count == 1) promise->set_value();
    };
  }
  std::shared_ptr<Cancellation> cancellation;

 private:
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
  std::shared_ptr<std::promise<void>> promise_ = std::make_shared<std::promise<void>>();
  std::future<void> future_ = promise_->get_future();
};

class ServerTest : public testing::Test {
 protected:
  Server& start(std::vector<ModelConfig> models, ServerOptions options = {}) {
    options.records_file = records_;
    server_ = std::make_unique<Server>(
        options, std::move(models),
        [this](const ModelConfig& config) -> std::unique_ptr<engine::ServedModel> {
          if (config.path == "broken") throw base::RunError("no such file");
          return std::make_unique<FakeModel>(config.name, std::max<std::size_t>(1, config.blocks),
                                             stage_);
        },
        Server::Events{[] {}, [this](const std::string& why) { lost_ = why; },
                       [](const std::string&) {}});
    server_->preload();
    stage_.forget_steps();
    return *server_;
  }

  static Request request(const std::string& model, std::vector<float> values) {
    Request request;
    request.id = "r";
    request.model = model;
    request.headers_ns = base::monotonic_ns();
    auto data = std::make_shared<std::vector<float>>(std::move(values));
    request.inputs.push_back({"input0",
                              engine::DataType::kFp32,
                              {static_cast<std::int64_t>(data->size() / 2), 2},
                              std::as_bytes(std::span(*data))});
    request.storage = data;
    return request;
  }

  Asked ask(Request request) {
    Asked asked;
    asked.cancellation = server_->infer(std::move(request), asked.done());
    return asked;
  }
  Asked ask(const std::string& model, std::vector<float> values = {1, 2}) {
    return ask(request(model, std::move(values)));
  }

  std::vector<nlohmann::json> records() {
    std::ifstream in(records_);
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  test::TempFolder folder_;
  std::string records_ = folder_.file("records.jsonl");
  Stage stage_;
  std::string lost_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersWithTheOutputOfTheRequest) {
  start({model("a")});
  const Answer answer = ask("a", {1, 2}).wait();
  EXPECT_TRUE(answer.status.ok()) << answer.status.message;
  EXPECT_THAT(answer.values, ElementsAre(2, 3));
  EXPECT_EQ(server_->statistics("a")->front().inference_count, 1u);
}

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
  Request urgent = request("a", {1, 2});
  urgent.deadline_ns = base::monotonic_ns() + 100'000'000;
  EXPECT_TRUE(ask(std::move(urgent)).wait().status.ok());
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

// Prevents: clients that do not read their responses fill the memory of the machine.
TEST_F(ServerTest, ResponsesAreCountedUntilTheyHaveBeenSent) {
  ServerOptions options;
  options.max_queued_bytes = 20;
  start({model("a", 2)}, options);
  std::promise<Response> answered;
  server_->infer(request("a", {1, 2, 3, 4}), [&](const Status& status, const Response& response) {
    EXPECT_TRUE(status.ok());
    answered.set_value(response);
  });
  std::optional<Response> unread = answered.get_future().get();
  EXPECT_EQ(server_->memory().used(), 16U);
  const Answer refused = ask("a").wait();
  EXPECT_EQ(refused.status.code, Code::kResourceExhausted);
  EXPECT_THAT(refused.status.message, HasSubstr("--max-queue-mb"));
  unread.reset();
  EXPECT_TRUE(test::eventually([&] { return server_->memory().used() == 0; }));
  EXPECT_TRUE(ask("a").wait().status.ok()) << "the memory is free again";
}

// Prevents: nine tenths of a batch that are counted as free while one slow reader keeps all of it.
TEST_F(ServerTest, AResponseKeepsTheMemoryOfItsWholeBatch) {
  start({model("a", 2)});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  std::promise<Response> answered;
  server_->infer(request("a", {1, 2}),
                 [&](const Status&, const Response& response) { answered.set_value(response); });
  auto other = ask("a");
  stage_.release();
  const Response unread = answered.get_future().get();
  EXPECT_TRUE(other.wait().status.ok());
  running.wait();
  EXPECT_EQ(server_->memory().used(), 16U);
}

// Prevents: a share that is given back twice, or more bytes than the limit.
TEST(ByteBudget, SharesFitIntoTheLimit) {
  std::optional<ByteBudget> budget(100);
  ByteBudget::Share first(*budget);
  EXPECT_TRUE(first.resize(60));
  ByteBudget::Share second(*budget);
  EXPECT_FALSE(second.resize(41));
  EXPECT_TRUE(second.resize(40));
  EXPECT_FALSE(second.resize(~std::uint64_t{0}));
  EXPECT_EQ(budget->used(), 100U);
  EXPECT_TRUE(first.resize(10));
  ByteBudget::Share moved(std::move(second));
  EXPECT_EQ(budget->used(), 50U);
  moved = {};
  EXPECT_EQ(budget->used(), 10U);
  budget.reset();  // The share keeps what it needs.
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

TEST_F(ServerTest, AFailedStepAnswersTheWholeBatchAndNoOther) {
  start({model("a", 2, 2), model("b")});
  stage_.fail = true;
  const Answer answer = ask("a").wait();
  EXPECT_EQ(answer.status.code, Code::kInternal);
  EXPECT_EQ(answer.status.message, "the kernel failed");
  EXPECT_EQ(stage_.steps(1).size(), 1u) << "no block after a failed one";
  stage_.fail = false;
  EXPECT_TRUE(ask("b").wait().status.ok());
  EXPECT_TRUE(ask("a").wait().status.ok());
  EXPECT_EQ(lost_, "");
}

TEST_F(ServerTest, ALostContextIsReported) {
  start({model("a")});
  stage_.lose_context = true;
  EXPECT_EQ(ask("a").wait().status.code, Code::kInternal);
  EXPECT_EQ(lost_, "the device is gone");
}

TEST_F(ServerTest, DrainAnswersWhatIsQueuedAndRefusesTheRest) {
  start({model("a")});
  stage_.hold();
  auto running = ask("a");
  auto waiting = ask("a");
  auto drained = std::async(std::launch::async, [this] { return server_->drain(); });
  while (server_->ready()) std::this_thread::yield();
  EXPECT_EQ(ask("a").wait().status.code, Code::kUnavailable);
  stage_.release();
  EXPECT_TRUE(drained.get());
  EXPECT_TRUE(running.answered());
  EXPECT_TRUE(waiting.wait().status.ok());
}

TEST_F(ServerTest, ADrainHasAnEnd) {
  ServerOptions options;
  options.drain_s = 0.02;
  start({model("a")}, options);
  stage_.hold();
  auto running = ask("a");
  EXPECT_FALSE(server_->drain());
  stage_.release();
}

TEST_F(ServerTest, TheEndOfTheServerAnswersWhatIsLeft) {
  start({model("a")});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  auto waiting = ask("a");
  auto end = std::async(std::launch::async, [this] { server_.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  stage_.release();
  end.wait();
  EXPECT_EQ(waiting.wait().status.code, Code::kUnavailable);
  running.wait();
}

TEST_F(ServerTest, UnloadAnswersWaitingRequestsAndLoadBringsTheModelBack) {
  start({model("a"), model("b")});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  auto waiting = ask("a");
  auto unloaded = std::async(std::launch::async, [this] { return server_->unload("a"); });
  EXPECT_EQ(waiting.wait().status.code, Code::kUnavailable);
  stage_.release();
  EXPECT_TRUE(unloaded.get().ok());
  EXPECT_TRUE(running.wait().status.ok());
  EXPECT_EQ(ask("a").wait().status.code, Code::kUnavailable);
  EXPECT_FALSE(server_->model_ready("a"));
  EXPECT_TRUE(ask("b").wait().status.ok());
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_TRUE(ask("a").wait().status.ok());
}

// Prevents: a load of minutes that keeps an operator from making room for it.
TEST_F(ServerTest, AnUnloadDoesNotWaitForTheLoadOfAnotherModel) {
  ModelConfig later = model("later");
  later.preload = false;
  start({model("a"), later});
  stage_.hold();
  auto loaded = std::async(std::launch::async, [this] { return server_->load("later"); });
  stage_.steps(1);  // it is being measured
  auto unloaded = std::async(std::launch::async, [this] { return server_->unload("a"); });
  EXPECT_EQ(unloaded.wait_for(kLimit), std::future_status::ready);
  EXPECT_FALSE(server_->model_ready("a"));
  EXPECT_FALSE(server_->model_ready("later"));
  stage_.release();
  EXPECT_TRUE(loaded.get().ok());
  EXPECT_TRUE(server_->model_ready("later"));
}

TEST_F(ServerTest, AModelThatCannotBeLoadedSaysWhy) {
  ModelConfig broken = model("broken");
  broken.preload = false;
  start({model("a"), broken});
  const Status status = server_->load("broken");
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_THAT(status.message, HasSubstr("no such file"));
  EXPECT_EQ(server_->repository().back().reason, "no such file");
  EXPECT_EQ(server_->load("other").code, Code::kNotFound);
}

// Prevents: a notice learned from the requests of one model and given for those of another. Headers
// of gRPC need not name the model.
TEST_F(ServerTest, HeadersWithoutAModelAreAnnouncedOnlyIfOneModelIsLoaded) {
  ModelConfig best_effort = model("b");
  best_effort.priority = 0;
  start({model("a"), best_effort});
  EXPECT_EQ(server_->headers("", 0), 0U);
  const std::uint64_t named = server_->headers("a", 0);
  EXPECT_NE(named, 0U);
  server_->forget(named);
  EXPECT_EQ(server_->headers("b", 0), 0U) << "best effort has no jobs";
  EXPECT_TRUE(server_->unload("b").ok());
  const std::uint64_t only = server_->headers("", 0);
  EXPECT_NE(only, 0U);
  server_->forget(only);
  EXPECT_TRUE(server_->unload("a").ok());
  EXPECT_TRUE(server_->load("b").ok());
  EXPECT_EQ(server_->headers("", 0), 0U);
}

TEST_F(ServerTest, UnsuitableRequestsNameTheFault) {
  start({model("a", 2)});
  const auto message = [this](const std::function<void(Request&)>& spoil) {
    Request bad = request("a", {1, 2});
    spoil(bad);
    const Answer answer = ask(std::move(bad)).wait();
    EXPECT_THAT(answer.status.code, testing::AnyOf(Code::kInvalidArgument, Code::kNotFound));
    return answer.status.message;
  };
  EXPECT_THAT(message([](Request& r) { r.model = "aa"; }), HasSubstr("did you mean 'a'"));
  EXPECT_THAT(message([](Request& r) { r.version = "2"; }), HasSubstr("no version '2'"));
  EXPECT_THAT(message([](Request& r) { r.inputs.clear(); }), HasSubstr("'input0' is missing"));
  EXPECT_THAT(message([](Request& r) { r.inputs[0].name = "x"; }), HasSubstr("is missing"));
  EXPECT_THAT(message([](Request& r) {
                r.inputs.push_back(r.inputs[0]);
                r.inputs[1].name = "x";
              }),
              HasSubstr("unknown input 'x'"));
  EXPECT_THAT(message([](Request& r) { r.inputs[0].type = engine::DataType::kInt32; }),
              HasSubstr("found datatype INT32, expected FP32"));
  EXPECT_THAT(message([](Request& r) {
                r.inputs[0].shape = {1, 1, 2};
              }),
              HasSubstr("found shape [1,1,2], expected [batch,2]"));
  EXPECT_THAT(message([](Request& r) {
                r.inputs[0].shape = {3, 2};
              }),
              HasSubstr("a batch of 3, allowed: 1 to 2"));
  EXPECT_THAT(message([](Request& r) { r.inputs[0].shape = {0, 2}; }), HasSubstr("a batch of 0"));
  EXPECT_THAT(message([](Request& r) { r.outputs = {"y"}; }), HasSubstr("unknown output 'y'"));
  EXPECT_TRUE(ask("a").wait().status.ok());
}

TEST_F(ServerTest, RecordsHaveThePublishedKeys) {
  start({model("a", 1, 2)});
  Request urgent = request("a", {1, 2});
  urgent.id = "\xff id";
  urgent.deadline_ns = urgent.headers_ns + 5'000'000'000;
  ask(std::move(urgent)).wait();
  const auto record = records().at(0);
  for (const char* key :
       {"tag", "model_name", "recv_time", "queued_time", "finish_time", "total_cost_by_ms",
        "child_model_execute_cost_by_ms", "child_model_run_time", "execute_cost", "wait_cost",
        "limit_cost_by_ms", "id", "batch", "announced_us", "result", "device"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  EXPECT_EQ(record["tag"], "EDF");
  EXPECT_DOUBLE_EQ(record["deadline_ms"], 5000);
  EXPECT_NEAR(record["finish_time"].get<double>() - record["recv_time"].get<double>(),
              record["total_cost_by_ms"].get<double>(), 0.01);
  EXPECT_GE(record["queued_time"], record["recv_time"]);
  EXPECT_LE(record["queued_time"], record["child_model_run_time"][0][0]);
}

// Prevents: a limit that was measured next to other work and makes every answer look fast.
TEST_F(ServerTest, TheLimitFollowsTheShortestExecutionOfTheSameSize) {
  stage_.step_time = std::chrono::milliseconds(30);
  start({model("a", 2)});
  const auto limit_ms = [this](std::vector<float> values) {
    EXPECT_TRUE(ask("a", std::move(values)).wait().status.ok());
    return records().back()["limit_cost_by_ms"].get<double>();
  };
  EXPECT_GE(limit_ms({1, 2}), 30);
  stage_.step_time = std::chrono::milliseconds(0);
  EXPECT_LT(limit_ms({1, 2}), 30);
  stage_.step_time = std::chrono::milliseconds(30);
  EXPECT_LT(limit_ms({1, 2}), 30);
  EXPECT_GE(limit_ms({1, 2, 3, 4}), 30);
  EXPECT_LT(server_->status()["models"][0]["limit_ms"], 30);
}

// Prevents: a full disk that ends the server.
TEST_F(ServerTest, RecordsThatCannotBeWrittenAreGivenUp) {
  records_ = "/dev/full";
  start({model("a")});
  EXPECT_TRUE(ask("a").wait().status.ok());
  EXPECT_TRUE(ask("a").wait().status.ok());
}

TEST_F(ServerTest, TheSchedulerChangesWhileRequestsWait) {
  start({model("a", 1, 2), model("b", 1, 2)});
  stage_.hold();
  std::vector<Asked> asked;
  for (int i = 0; i < 6; ++i) asked.push_back(ask(i % 2 == 0 ? "a" : "b"));
  for (const char* policy : {"DLIR", "FIFO", "bnst", "OYST", "DLIR", "EDF", "PARALLER", "EDF"}) {
    EXPECT_TRUE(server_->set_scheduler(policy).ok()) << policy;
    EXPECT_THAT(server_->scheduler(), testing::StrCaseEq(policy));
  }
  EXPECT_EQ(server_->set_scheduler("LIFO").code, Code::kInvalidArgument);
  stage_.release();
  for (Asked& each : asked) EXPECT_TRUE(each.wait().status.ok());
}

TEST_F(ServerTest, ParallerRunsInstancesAtTheSameTime) {
  ModelConfig config = model("a");
  config.num_worker = 2;
  ServerOptions options;
  options.dispatcher.policy = scheduler::Policy::kParaller;
  start({config}, options);
  stage_.hold();
  std::vector<Asked> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(ask("a"));
  EXPECT_EQ(stage_.steps(2).size(), 2u);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(stage_.steps(2).size(), 2u) << "a third step needs a third instance";
  stage_.release();
  for (Asked& each : asked) EXPECT_TRUE(each.wait().status.ok());
}

TEST_F(ServerTest, MetricsCountResults) {
  start({model("a")});
  ask("a").wait();
  ask(request("a", {1, 2, 3, 4})).wait();
  const std::string text = server_->metrics();
  EXPECT_THAT(text, HasSubstr(R"(sluice_serve_requests_total{model="a",result="ok"} 1)"));
  EXPECT_THAT(text,
              HasSubstr(R"(sluice_serve_requests_total{model="a",result="invalid_argument"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(sluice_serve_request_seconds_bucket{model="a",le="+Inf"} 1)"));
}

}  // namespace
}  // namespace sluice::server
