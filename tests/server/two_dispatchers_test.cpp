// Two dispatchers, one for each device, in virtual time: what each knows of its work, and requests
// that go from one to the other.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <map>

#include "server/requests/device.hpp"
#include "server/training/turn.hpp"
#include "tests/server/asked.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/server/virtual_host.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kMs = 1'000'000;

/// Training that has the device and never leaves.
class Trains : public Turn {
 public:
  bool take() override { return false; }
  void give_back() override {}
};

/// Two devices in virtual time, of which the first is also used for training. Each block of a model
/// takes 10 ms.
class TwoDispatchers : public testing::Test {
 protected:
  TwoDispatchers() {
    for (const std::size_t i : {0U, 1U}) {
      const int gpu = static_cast<int>(i);
      auto host = std::make_unique<VirtualHost>();
      hosts_[i] = host.get();
      host->takes = [](const Execution&, const scheduler::Step& step) {
        return 10 * kMs * step.blocks;
      };
      Device& device = devices_[i];
      device.gpu = gpu;
      device.dispatcher = std::make_unique<Dispatcher>(
          DispatcherOptions{}, announcer_, memory_,
          [this](const Execution& execution, Pending& pending, const Status& status,
                 const Response& response) {
            if (status.ok()) answered_on_[pending.id] = execution.model->gpu();
            pending.done(status, response);
            if (on_answer_) on_answer_();
          },
          [](const std::string&) {},
          Dispatcher::Sharing{gpu, i == 0 ? &trains_ : nullptr, nullptr, hand_on}, std::move(host));
    }
  }
  ~TwoDispatchers() override {
    for (Device& device : devices_) device.dispatcher->stop();
  }

  std::shared_ptr<Model> add(const std::string& name, int gpu, std::size_t blocks = 1,
                             std::size_t batch_size = 1, int priority = 0) {
    ModelConfig config = model(name, batch_size, blocks);
    config.priority = priority;
    config.gpus = {gpu};
    auto made = std::make_shared<Model>(config);
    made->instances.push_back(std::make_unique<Model::Instance>());
    made->instances.back()->served =
        std::make_unique<FakeModel>(name + std::to_string(gpu), blocks, stage_);
    for (const std::size_t items : {std::size_t{1}, batch_size}) {
      made->timing.measured(items, std::vector<std::uint64_t>(blocks, 10 * kMs));
      made->limits.measured(items, made->timing.whole_ns(items));
    }
    made->id = next_model_++;
    made->device = &devices_.at(static_cast<std::size_t>(gpu));
    made->device->dispatcher->add_model(made);
    return made;
  }
  /// Of the first replica, whatever the others have to do.
  Asked ask(const Replicas& replicas, std::int64_t deadline_ms = 0) {
    Asked asked;
    const auto& first = replicas.front();
    Pending pending;
    pending.id = next_request_++;
    pending.items = 1;
    pending.times.arrived_ns = hosts_.at(0)->now_ns();
    if (deadline_ms > 0) pending.deadline_ns = hosts_.at(0)->now_ns() + deadline_ms * kMs;
    set_input(pending.request, {1, 2});
    pending.done = asked.done();
    pending.elsewhere.assign(replicas.begin() + 1, replicas.end());
    first->waiting.fetch_add(1);
    first->device->dispatcher->submit(first, std::move(pending));
    return asked;
  }
  void advance_ms(std::uint64_t ms) {
    for (VirtualHost* const host : hosts_) host->advance(ms * kMs);
  }
  [[nodiscard]] std::uint64_t ahead_ms(int gpu) {
    return devices_.at(static_cast<std::size_t>(gpu)).dispatcher->ahead_ns() / kMs;
  }

  Stage stage_;
  std::map<std::uint64_t, int> answered_on_;
  std::function<void()> on_answer_;

 private:
  Trains trains_;
  Announcer announcer_{false};
  const ByteBudget memory_{1U << 20U};
  std::uint32_t next_model_ = 1;
  std::uint64_t next_request_ = 1;

 protected:
  std::array<VirtualHost*, 2> hosts_{};
  std::array<Device, 2> devices_;
};

// Prevents: requests that go to a device with much to do, because what runs there, waits there, or
// has been done is not counted, or is counted for ever.
TEST_F(TwoDispatchers, ADeviceKnowsHowLongItsWorkWillTake) {
  const auto a = add("a", 0, 2, 2);
  EXPECT_EQ(ahead_ms(0), 0U);
  auto first = ask({a});
  EXPECT_EQ(ahead_ms(0), 20U);
  auto second = ask({a});
  EXPECT_EQ(ahead_ms(0), 40U);
  auto third = ask({a});  // joins the batch of the second
  EXPECT_EQ(ahead_ms(0), 40U);
  EXPECT_EQ(ahead_ms(1), 0U);
  advance_ms(15);
  EXPECT_EQ(ahead_ms(0), 25U);
  advance_ms(10);
  EXPECT_EQ(ahead_ms(0), 15U);
  auto fourth = ask({a});
  EXPECT_EQ(ahead_ms(0), 35U);
  advance_ms(15);
  EXPECT_EQ(ahead_ms(0), 20U);
  advance_ms(50);
  EXPECT_TRUE(fourth.now().status.ok());
  EXPECT_EQ(ahead_ms(0), 0U);
}

// Prevents: the work of a request that has left stays on the bill of its device.
TEST_F(TwoDispatchers, WhatIsCalledOffIsNotAhead) {
  const auto a = add("a", 0);
  auto running = ask({a});
  auto waiting = ask({a});
  EXPECT_EQ(ahead_ms(0), 20U);
  devices_[0].dispatcher->cancel(2);
  EXPECT_EQ(waiting.now().status.code, Code::kCancelled);
  EXPECT_EQ(ahead_ms(0), 10U);
}

// Prevents: a burst that goes to one device, because its thread has not read the first requests
// yet.
TEST_F(TwoDispatchers, WhatNobodyHasReadYetIsAhead) {
  const auto a = add("a", 0);
  std::optional<Asked> second;
  on_answer_ = [&] {
    second = ask({a});  // in a round, so nobody reads it before the end of the round
    EXPECT_EQ(ahead_ms(0), 10U);
  };
  auto first = ask({a});
  advance_ms(10);
  ASSERT_TRUE(second);
  EXPECT_EQ(ahead_ms(0), 10U);
  on_answer_ = nullptr;
  advance_ms(10);
  EXPECT_EQ(ahead_ms(0), 0U);
}

TEST_F(TwoDispatchers, TheEarliestIsTheOneThatIsDoneFirst) {
  Replicas a{add("a", 0), add("a", 1)};
  EXPECT_EQ(earliest(a, 1), a.begin()) << "of equal ones the first";
  auto one = ask(a);
  EXPECT_EQ(earliest(a, 1), a.begin() + 1);
  const auto long_one = add("long", 1, 4);
  auto other = ask({long_one});
  EXPECT_EQ(earliest(a, 1), a.begin());
}

// Prevents: a critical request that waits for training to leave while another device is idle, and
// one of best effort that avoids a device on which it would not wait.
TEST_F(TwoDispatchers, OnlyACriticalRequestAvoidsADeviceWithTraining) {
  Replicas critical{add("a", 0, 1, 1, 1), add("a", 1, 1, 1, 1)};
  EXPECT_EQ(earliest(critical, 1), critical.begin() + 1);
  Replicas other{add("b", 0), add("b", 1)};
  EXPECT_EQ(earliest(other, 1), other.begin());
}

// Prevents: a request that is refused although another device would have been in time: device 0 has
// less to do, but all of it more urgent.
TEST_F(TwoDispatchers, ARequestThatWouldBeLateGoesToTheOtherDevice) {
  const Replicas a{add("a", 0), add("a", 1)};
  const auto urgent = add("urgent", 0);
  const auto lax = add("lax", 1);
  std::vector<Asked> others;
  for (int i = 0; i < 3; ++i) others.push_back(ask({urgent}, 31));
  for (int i = 0; i < 4; ++i) others.push_back(ask({lax}));
  auto asked = ask(a, 35);
  EXPECT_EQ(a[0]->waiting, 0U);
  EXPECT_EQ(a[1]->waiting, 1U);
  advance_ms(100);
  EXPECT_TRUE(asked.now().status.ok()) << asked.now().status.message;
  EXPECT_EQ(asked.now().count, 1);
  EXPECT_EQ(answered_on_.at(8), 1);
  for (Asked& other : others) EXPECT_TRUE(other.now().status.ok());
}

// Prevents: a request that goes around for ever, or has no answer or two.
TEST_F(TwoDispatchers, ARequestThatIsLateEverywhereIsRefusedOnce) {
  const Replicas a{add("a", 0), add("a", 1)};
  std::vector<Asked> others;
  for (int i = 0; i < 6; ++i) others.push_back(ask({a[static_cast<std::size_t>(i % 2)]}));
  auto asked = ask(a, 5);
  EXPECT_EQ(asked.now().status.code, Code::kResourceExhausted);
  EXPECT_EQ(asked.now().status.reason, "deadline");
  EXPECT_EQ(asked.now().count, 1);
  EXPECT_EQ(a[0]->waiting + a[1]->waiting, 4U);
}

// Prevents: a request that failed, or whose client is gone, is run again elsewhere.
TEST_F(TwoDispatchers, OnlyARefusalGoesElsewhere) {
  const Replicas a{add("a", 0), add("a", 1)};
  stage_.fail = true;
  auto failed = ask(a);
  advance_ms(20);
  EXPECT_EQ(failed.now().status.code, Code::kInternal);
  stage_.fail = false;
  auto running = ask({a[0]});
  auto waiting = ask(a, 0);
  devices_[0].dispatcher->cancel(3);
  EXPECT_EQ(waiting.now().status.code, Code::kCancelled);
  EXPECT_THAT(stage_.steps(0), ElementsAre("a0[1] 0+1", "a0[1] 0+1"));
}

// Prevents: a device on which a model fails at once, and which is therefore always done first,
// draws all requests to itself. It is tried again later.
TEST_F(TwoDispatchers, ADeviceOnWhichAModelFailsIsAvoidedForAWhile) {
  Replicas a{add("a", 0), add("a", 1)};
  stage_.fail = true;
  auto failed = ask(a);
  advance_ms(20);
  EXPECT_EQ(failed.now().status.code, Code::kInternal);
  EXPECT_EQ(earliest(a, 1), a.begin() + 1);
  auto failed_too = ask({a[1]});
  advance_ms(20);
  EXPECT_EQ(earliest(a, 1), a.begin()) << "it fails on both";
  stage_.fail = false;
  advance_ms(970);
  EXPECT_EQ(earliest(a, 1), a.begin()) << "its time is over";
  auto good = ask({a[1]});
  advance_ms(10);
  EXPECT_TRUE(good.now().status.ok());
}

// Prevents: two requests at the same time that both go to the first device, because the one that a
// round has read, and not yet counted, seems to be nowhere.
TEST_F(TwoDispatchers, ARequestIsAheadWhileARoundReadsIt) {
  const auto a = add("a", 0);
  std::uint64_t seen_ms = 0;
  hosts_[0]->takes = [&](const Execution&, const scheduler::Step&) {
    seen_ms = ahead_ms(0);
    return 10 * kMs;
  };
  auto asked = ask({a});
  EXPECT_EQ(seen_ms, 10U);
  EXPECT_EQ(ahead_ms(0), 10U);
}

// Prevents: a drain that is over while a request is on a device that was empty before the request
// came there.
TEST_F(TwoDispatchers, ADrainFindsARequestThatMovesMeanwhile) {
  const Replicas a{add("a", 1), add("a", 0)};
  const auto lax = add("lax", 1, 4);
  Asked late;
  Pending last;
  last.items = 1;
  set_input(last.request, {1, 2});
  last.done = [&](const Status&, const Response&) { late = ask(a, 15); };
  a[0]->waiting.fetch_add(1);
  devices_[1].dispatcher->submit(a[0], std::move(last));
  auto other = ask({lax});
  EXPECT_TRUE(drain({&devices_[0], &devices_[1]}, hosts_[0]->now_ns() + 1000 * kMs));
  EXPECT_TRUE(other.now().status.ok());
  EXPECT_TRUE(late.now().status.ok()) << late.now().status.message;
}

// Prevents: a request that runs for a client that is gone, because it moved while its cancellation
// went from device to device.
TEST_F(TwoDispatchers, ARequestOfAClientThatIsGoneIsNotTakenOver) {
  const auto a = add("a", 0);
  const auto gone = std::make_shared<std::atomic<bool>>(true);
  Asked asked;
  Pending pending;
  pending.items = 1;
  set_input(pending.request, {1, 2});
  pending.done = asked.done();
  pending.gone = gone;
  a->waiting.fetch_add(1);
  devices_[0].dispatcher->hand_over(a, std::move(pending));
  EXPECT_EQ(asked.now().status.code, Code::kCancelled);
  EXPECT_EQ(a->waiting, 0U);
  EXPECT_TRUE(stage_.steps(0).empty());
}

}  // namespace
}  // namespace sluice::server
