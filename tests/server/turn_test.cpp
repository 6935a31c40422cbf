// Prevents: requests that run before training has left, or never; a turn that is not given back
// when the last request has been answered, dropped or cancelled; and models without priority that
// interrupt training.
#include "server/training/turn.hpp"

#include "tests/server/dispatcher_test.hpp"

namespace sluice::server {
namespace {

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

  bool free = false;
  int taken = 0;
  int given_back = 0;
};

class TurnTest : public DispatcherTest {
 protected:
  TurnTest() {
    DispatcherOptions options;
    options.batch_line = [this](const std::string& line) { line_ = line; };
    start(options, &turn_);
  }

  std::shared_ptr<Model> with_priority(unsigned priority) {
    ModelConfig config = model(priority > 0 ? "critical" : "other");
    config.priority = priority;
    return add(config);
  }

  FakeTurn turn_;
  std::string line_;
};

TEST_F(TurnTest, ARequestWaitsForItsTurnAndGivesItBackOnce) {
  const auto critical = with_priority(1);
  auto first = ask(critical);
  EXPECT_EQ(turn_.taken, 1);
  advance_ms(30);
  EXPECT_TRUE(steps().empty()) << "training has not left";
  turn_.free = true;
  dispatcher_->wake();
  advance_ms(10);
  EXPECT_TRUE(first.now().status.ok());
  EXPECT_EQ(turn_.given_back, 1);
  EXPECT_THAT(line_,
              MatchesRegex("\\[Inference\\]: critical \\(rank 0\\) set_input_ms=[0-9.]+ "
                           "infer_ms=10[.0]+ get_output_ms=[0-9.]+ wait_train_stop_ms=30[.0]+ "
                           "total_infer_ms=10[.0]+"));
  auto second = ask(critical);
  advance_ms(10);
  EXPECT_TRUE(second.now().status.ok());
  EXPECT_EQ(turn_.given_back, 2);
  EXPECT_THAT(line_, testing::Not(HasSubstr("wait_train_stop_ms"))) << "it had not to wait";
}

// Prevents: requests that wait for training to leave this device while another device is idle.
TEST_F(TurnTest, TheWaitForTheTurnIsKnown) {
  const auto critical = with_priority(1);
  EXPECT_GT(dispatcher_->turn_wait_ns(), 0U) << "training may have the device";
  auto first = ask(critical);
  advance_ms(30);
  turn_.free = true;
  dispatcher_->wake();
  EXPECT_EQ(dispatcher_->turn_wait_ns(), 0U) << "it has the turn";
  advance_ms(10);
  EXPECT_TRUE(first.now().status.ok());
  EXPECT_EQ(dispatcher_->turn_wait_ns() / kMs, 30U) << "as long as the last time";
  auto second = ask(critical);
  advance_ms(10);
  EXPECT_TRUE(second.now().status.ok());
  EXPECT_LT(dispatcher_->turn_wait_ns(), kMs) << "training left at once";
}

TEST_F(TurnTest, ABusyPeriodTakesTheTurnOnce) {
  const auto critical = with_priority(1);
  turn_.free = true;
  auto first = ask(critical);
  auto second = ask(critical);
  advance_ms(20);
  EXPECT_TRUE(first.now().status.ok());
  EXPECT_TRUE(second.now().status.ok());
  EXPECT_EQ(turn_.given_back, 1);
  EXPECT_EQ(turn_.taken, 1);
}

TEST_F(TurnTest, ADroppedRequestGivesTheTurnBack) {
  const auto critical = with_priority(1);
  auto expires = ask(critical, {.deadline_ms = 50});
  advance_ms(50);
  EXPECT_EQ(expires.now().status.code, Code::kDeadlineExceeded);
  EXPECT_EQ(turn_.given_back, 1);
  auto leaves = ask(critical);
  dispatcher_->cancel(2);
  EXPECT_EQ(leaves.now().status.code, Code::kCancelled);
  EXPECT_EQ(turn_.given_back, 2);
}

TEST_F(TurnTest, AModelWithoutPriorityLeavesTrainingAlone) {
  auto asked = ask(with_priority(0));
  advance_ms(10);
  EXPECT_TRUE(asked.now().status.ok());
  EXPECT_EQ(turn_.taken, 0);
  EXPECT_EQ(turn_.given_back, 0);
}

}  // namespace
}  // namespace sluice::server
