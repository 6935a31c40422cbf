// Prevents: requests that run before training has left, or never; a turn that is not given back
// when the last request has been answered, dropped or cancelled; and models without priority that
// interrupt training.
#include "server/training/turn.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/clock.hpp"
#include "server/models/loader.hpp"
#include "server/requests/dispatcher.hpp"
#include "tests/server/fake_model.hpp"

namespace sluice::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::MatchesRegex;

/// Training that leaves when the test lets it.
class FakeTurn : public Turn {
 public:
  bool take() override {
    ++taken;
    return free;
  }
  void give_back() override { ++given_back; }

  std::atomic<bool> free{false};
  std::atomic<int> taken{0};
  std::atomic<int> given_back{0};
};

class TurnTest : public testing::Test {
 protected:
  TurnTest() {
    DispatcherOptions options;
    options.batch_line = [this](const std::string& line) { line_ = line; };
    dispatcher_.emplace(
        options, announcer_, memory_,
        [](const Execution&, Pending& pending, const Status& status, const Response& response) {
          pending.done(status, response);
        },
        [](const std::string&) {}, Dispatcher::Sharing{&turn_, nullptr});
  }

  std::shared_ptr<Model> model(unsigned priority) {
    ModelConfig config;
    config.name = priority > 0 ? "critical" : "other";
    config.priority = priority;
    auto made = load_model(config, [&](const ModelConfig& of) {
      return std::make_unique<FakeModel>(of.name, 1, stage_);
    });
    made->id = next_model_++;
    dispatcher_->add_model(made);
    stage_.forget_steps();
    return made;
  }

  std::future<Code> send(const std::shared_ptr<Model>& to, std::uint64_t deadline_ns = ~0ULL) {
    auto answer = std::make_shared<std::promise<Code>>();
    Pending pending;
    pending.id = next_request_++;
    pending.items = 1;
    pending.deadline_ns = deadline_ns;
    pending.times.arrived_ns = base::monotonic_ns();
    pending.request.inputs = {
        {"input0", engine::DataType::kFp32, {1, 2}, std::as_bytes(std::span(zeros_))}};
    pending.done = [answer](const Status& status, const Response&) {
      answer->set_value(status.code);
    };
    to->waiting.fetch_add(1);
    dispatcher_->submit(to, std::move(pending));
    return answer->get_future();
  }
  static Code answer_of(std::future<Code> answer) {
    return answer.wait_for(seconds(20)) == std::future_status::ready ? answer.get()
                                                                     : Code::kInternal;
  }
  static bool becomes(const std::atomic<int>& value, int wanted) {
    for (int i = 0; i < 2000 && value != wanted; ++i) std::this_thread::sleep_for(milliseconds(5));
    return value == wanted;
  }

  const std::array<float, 2> zeros_{};
  Stage stage_;
  FakeTurn turn_;
  Announcer announcer_{false};
  const ByteBudget memory_{1U << 20U};
  std::string line_;
  std::uint32_t next_model_ = 1;
  std::uint64_t next_request_ = 1;
  std::optional<Dispatcher> dispatcher_;
};

TEST_F(TurnTest, ARequestWaitsForItsTurnAndGivesItBackOnce) {
  const auto critical = model(1);
  auto first = send(critical);
  ASSERT_TRUE(becomes(turn_.taken, 1));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(first.wait_for(milliseconds(0)), std::future_status::timeout)
      << "training has not left";
  turn_.free = true;
  dispatcher_->wake();
  EXPECT_EQ(answer_of(std::move(first)), Code::kOk);
  EXPECT_TRUE(becomes(turn_.given_back, 1));
  EXPECT_THAT(
      line_,
      MatchesRegex("\\[Inference\\]: critical \\(rank 0\\) set_input_ms=[0-9.]+ infer_ms=[0-9.]+ "
                   "get_output_ms=[0-9.]+ wait_train_stop_ms=[1-9][0-9.]+ total_infer_ms=[0-9.]+"));
  EXPECT_EQ(answer_of(send(critical)), Code::kOk);
  EXPECT_TRUE(becomes(turn_.given_back, 2));
  EXPECT_THAT(line_, testing::Not(HasSubstr("wait_train_stop_ms"))) << "it had not to wait";
}

TEST_F(TurnTest, ABusyPeriodTakesTheTurnOnce) {
  const auto critical = model(1);
  turn_.free = true;
  stage_.hold();
  auto first = send(critical);
  EXPECT_EQ(stage_.steps(1).size(), 1U);
  auto second = send(critical);
  stage_.release();
  EXPECT_EQ(answer_of(std::move(first)), Code::kOk);
  EXPECT_EQ(answer_of(std::move(second)), Code::kOk);
  EXPECT_TRUE(becomes(turn_.given_back, 1));
  EXPECT_EQ(turn_.taken, 1);
}

TEST_F(TurnTest, ADroppedRequestGivesTheTurnBack) {
  const auto critical = model(1);
  auto expires = send(critical, base::monotonic_ns() + 50'000'000);
  EXPECT_EQ(answer_of(std::move(expires)), Code::kDeadlineExceeded);
  EXPECT_TRUE(becomes(turn_.given_back, 1));
  const int taken = turn_.taken;
  auto leaves = send(critical);
  ASSERT_TRUE(becomes(turn_.taken, taken + 1)) << "a request that left before it asked";
  dispatcher_->cancel(2);
  EXPECT_EQ(answer_of(std::move(leaves)), Code::kCancelled);
  EXPECT_TRUE(becomes(turn_.given_back, 2));
}

TEST_F(TurnTest, AModelWithoutPriorityLeavesTrainingAlone) {
  const auto other = model(0);
  EXPECT_EQ(answer_of(send(other)), Code::kOk);
  EXPECT_EQ(turn_.taken, 0);
  EXPECT_EQ(turn_.given_back, 0);
}

}  // namespace
}  // namespace sluice::server
