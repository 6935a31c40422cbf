// Rounds that run in the threads of clients and of steps: each request is answered once, although
// nobody else wakes the server.
#include <atomic>
#include <barrier>
#include <random>
#include <thread>

#include "tests/server/dispatcher_test.hpp"
#include "tests/server/server_test.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using namespace std::chrono_literals;

class Rounds : public ServerTest, public testing::WithParamInterface<int> {
 protected:
  /// A client that waits for each answer, so that a lost wakeup stays lost if all clients wait.
  void client(unsigned seed) {
    std::minstd_rand random(seed);
    for (int i = 0; i < kEach; ++i) {
      const auto kind = random() % 4;
      Request asked = request(kind == 0 ? "held" : "plain", {1, 2});
      constexpr std::uint64_t kTightNs = 150'000;
      if (kind == 1) asked.deadline_ns = base::monotonic_ns() + kTightNs;
      Asked one = ask(std::move(asked));
      if (kind == 2 && one.cancellation) one.cancellation->cancel();
      const Answer answer = one.wait();
      const Code code = answer.status.code;
      const bool other = kind == 1
                             ? code == Code::kDeadlineExceeded || code == Code::kResourceExhausted
                             : kind == 2 && code == Code::kCancelled;
      if (answer.count == 1 && (code == Code::kOk || other)) ++answered_;
    }
  }

  static constexpr int kEach = 200;
  std::atomic<int> answered_ = 0;
};

// Prevents: a request that waits until the next one comes, because a round, the end of a step or
// the time to release a batch went unseen; and a crash, because a cancelled request freed the input
// that an executor was reading.
TEST_P(Rounds, EachRequestIsAnsweredAlthoughNobodyElseComes) {
  ModelConfig held = model("held", 8);
  held.max_delay_us = 300;
  start({held, model("plain", 2, 3)});
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < GetParam(); ++i) {
      clients.emplace_back([this, i] { client(static_cast<unsigned>(i) + 1); });
    }
  }
  EXPECT_EQ(answered_, GetParam() * kEach);
  EXPECT_TRUE(server_->drain(base::monotonic_ns()));
  EXPECT_TRUE(test::eventually([&] { return server_->memory().used() == 0; }));
}
INSTANTIATE_TEST_SUITE_P(Clients, Rounds, testing::Values(1, 2, 8),
                         testing::PrintToStringParamName());

// Prevents: a crash of refused requests, whose threads write records too, when the disk is full.
TEST(Records, OneOfManyThreadsGivesThemUp) {
  Execution execution;
  execution.model = std::make_shared<Model>(model("a"));
  execution.model->limits.measured(1, 1);
  Pending pending;
  pending.items = 1;
  for (int i = 0; i < 30; ++i) {
    Records records("/dev/full", "EDF", "cpu");
    std::barrier all(4);
    testing::internal::CaptureStderr();
    {
      std::vector<std::jthread> threads;
      for (int k = 0; k < 4; ++k) {
        threads.emplace_back([&] {
          all.arrive_and_wait();
          records.write(execution, pending, {});
        });
      }
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  }
}

// Prevents: a server that lives on and runs no round: gRPC's threads swallow exceptions.
TEST(RoundsDeathTest, ARoundThatThrowsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto serve = [] {
    const auto host = threads();
    host->start([here = std::this_thread::get_id()]() -> std::uint64_t {
      if (std::this_thread::get_id() != here) return scheduler::kNoDeadline;
      throw std::runtime_error("out of memory in a round");
    });
    try {
      // Once the host's own thread waits, the round is this thread's.
      static_cast<void>(test::eventually([&] {
        host->wake_here();
        return false;
      }));
    } catch (const std::runtime_error&) {
      _exit(0);
    }
  };
  EXPECT_DEATH(serve(), "out of memory in a round");
}

// Prevents: a use of freed memory when the device is lost in the last step, and an answer that
// hides the loss.
TEST_F(DispatcherTest, ADeviceThatIsLostAtTheEndIsTheReasonOfAllAnswers) {
  start();
  lost_ = [&dispatcher = *dispatcher_](const std::string& why) {
    dispatcher.fail_all({Code::kInternal, why});
  };
  const auto one = add(model("a"));
  stage_.lose_context = true;
  auto running = ask(one);
  auto waiting = ask(one);
  dispatcher_.reset();
  EXPECT_EQ(running.now().status.message, "the device is gone");
  EXPECT_EQ(waiting.now().status.message, "the device is gone");
}

}  // namespace
}  // namespace sluice::server
