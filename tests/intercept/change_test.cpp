// A client that gets another policy or priority while it runs: no launch is lost or reordered, and
// no thread waits where the new policy would not make it wait.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include "shm/messages.hpp"
#include "shm/policy.hpp"
#include "shm/session.hpp"
#include "tests/intercept/session.hpp"
#include "tests/support/fast_clock.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;
using shm::PolicyKind;

class Change : public Session {
 protected:
  void ask(std::uint32_t priority, std::uint64_t policy) {
    shm::Request request;
    request.kind = shm::RequestKind::kSet;
    request.slot = static_cast<int>(&slot() - board().slots.data());
    request.generation = shm::SlotInfo::unpack(slot().info.load()).generation;
    request.board_id = board().board_id.load();
    request.priority = priority;
    request.policy = policy;
    const int connection = shm::connect_controller(shm::socket_path(session_).c_str());
    shm::Reply reply;
    EXPECT_EQ(shm::ask(connection, request, reply, 10'000), 0);
    EXPECT_EQ(reply.status, shm::ReplyStatus::kOk) << reply.text.data();
    close(connection);
  }
  void set_priority(int priority) { ask(static_cast<std::uint32_t>(priority), shm::kKeepPolicy); }
  bool in_force(const char* policy) {
    return slot().policy.load() == shm::parse_policy(policy)->pack();
  }
  /// Requests a policy and waits until the client's watcher has put it in force.
  void set_policy(const char* policy) {
    ask(shm::kKeepPriority, shm::parse_policy(policy)->pack());
    EXPECT_TRUE(eventually([&] { return in_force(policy); })) << policy;
  }
};

/// One launch on a thread of its own.
class Launch {
 public:
  explicit Launch(CUstream stream)
      : thread_([this, stream] {
          ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
          returned_.store(true);
        }) {}
  ~Launch() { thread_.join(); }
  [[nodiscard]] bool returns() const {
    return eventually([&] { return returned_.load(); });
  }
  [[nodiscard]] bool returned() const { return returned_.load(); }

 private:
  std::atomic<bool> returned_{false};
  std::thread thread_;
};

std::string order_of_calls() {
  std::string order;
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuLaunchKernel) order += 'K';
    if (call.id == Id::cuStreamWaitValue64_v2) order += 'W';
  }
  return order;
}

// Prevents: with max_hold off, a thread that is held indefinitely although the new policy holds
// nobody.
TEST_F(Change, AHeldLaunchGoesOnUnderNone) {
  attach("gate");
  outrank().begin();
  Launch held(nullptr);
  EXPECT_TRUE(eventually([&] { return slot().waiters.load() == 1; }));
  set_policy("none");
  EXPECT_TRUE(held.returns());
  EXPECT_EQ(slot().waiters.load(), 0U);
  EXPECT_EQ(order_of_calls(), "K");
}

// Prevents: a launch that passes the closed gate because its policy changed in between.
TEST_F(Change, AHeldLaunchIsHeldInItsStreamUnderDevice) {
  for (const char* before : {"gate", "event:3", "sync:2"}) {
    SCOPED_TRACE(before);
    if (critical_ == nullptr) {
      attach("gate");
      outrank();
    }
    set_policy(before);
    critical_->begin();
    fake::clear();
    CUstream stream = make_stream();
    {
      Launch held(stream);
      EXPECT_TRUE(eventually([&] { return slot().waiters.load() == 1; }));
      EXPECT_EQ(order_of_calls(), "");
      set_policy("device:4");
      EXPECT_TRUE(held.returns());
    }
    EXPECT_EQ(order_of_calls(), "WK");
    for (int i = 0; i < 4; ++i) launch(stream);
    EXPECT_EQ(order_of_calls(), "WKKKKWK");
    critical_->end();
  }
}

// The same under device:Tus, where no wait would be due before T is spent.
TEST_F(Change, AHeldLaunchGetsItsWaitUnderDeviceInTimeToo) {
  attach("gate");
  outrank().begin();
  CUstream stream = make_stream();
  Launch held(stream);
  EXPECT_TRUE(eventually([&] { return slot().waiters.load() == 1; }));
  set_policy("device:1000000us");
  EXPECT_TRUE(held.returns());
  EXPECT_EQ(order_of_calls(), "WK");
}

TEST_F(Change, TheNextLaunchIsUnderTheNewPolicy) {
  attach("none");
  outrank();
  CUstream stream = make_stream();
  launch(stream);
  EXPECT_EQ(counted(Count::kBypassPolicyNone), 2U);
  set_policy("device:2");
  fake::clear();
  for (int i = 0; i < 4; ++i) launch(stream);
  EXPECT_EQ(order_of_calls(), "WKKWKK");
  set_policy("device:3");
  fake::clear();
  for (int i = 0; i < 4; ++i) launch(stream);
  EXPECT_EQ(order_of_calls(), "WKKKWK") << "its spacing begins anew";
  set_policy("gate");
  fake::clear();
  launch(stream);
  EXPECT_EQ(order_of_calls(), "K");
  critical_->begin();
  Launch held(stream);
  EXPECT_TRUE(eventually([&] { return slot().waiters.load() == 1; }));
  EXPECT_FALSE(held.returned());
  critical_->end();
  EXPECT_TRUE(held.returns());
}

// Prevents: a thread at a sync point, or before an event group, waits for a stream that others now
// fill without end; after 5 s the client would run ungated for good.
TEST_F(Change, AThreadInADriverWaitGoesOnUnderTheNextPolicy) {
  attach("sync:1");
  outrank();
  for (const char* policy : {"sync:1", "event:1"}) {
    SCOPED_TRACE(policy);
    set_policy(policy);
    CUstream stream = make_stream();
    fake::pause();
    if (policy[0] == 'e') {
      launch(stream);
      launch(stream);
    }
    Launch waits(stream);
    std::this_thread::sleep_for(60ms);
    EXPECT_FALSE(waits.returned()) << "the test sees nothing";
    set_policy("gate");
    EXPECT_TRUE(waits.returns());
    fake::resume();
  }
  EXPECT_EQ(slot().skipped_waits.load(), 0U);
}

// Work is queued behind the closed gate under device; then the client becomes event:1, and its next
// group waits for that work. Prevents: after 5 s of a longer hold, the client runs ungated for
// good.
TEST_F(Change, AClosedGateIsNoDriverThatHangs) {
  attach("event:1");
  Critical& critical = outrank();
  CUstream stream = make_stream();
  fake::pause();  // work behind a stream wait does not end
  launch(stream);
  launch(stream);
  critical.begin();
  {
    Launch waits(stream);
    {
      const sluice::test::FastClock clock;
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < 7s) std::this_thread::sleep_for(1ms);
    }
    EXPECT_FALSE(waits.returned());
    EXPECT_EQ(slot().skipped_waits.load(), 0U) << "gave up, and runs ungated from now on";
    fake::resume();
    critical.end();
    EXPECT_TRUE(waits.returns());
  }
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).state, shm::SlotState::kLive);
}

// Prevents: the client requests device:N again and again from a device that refuses it, with a
// warning each time.
TEST_F(Change, WhoFellBackKeepsFallingBack) {
  fake::set_stream_waits(false);
  attach("device:4");
  outrank();
  launch();
  EXPECT_TRUE(in_force("event:2"));
  EXPECT_EQ(slot().requested_policy.load(), shm::parse_policy("device:4")->pack());
  set_policy("gate");
  ask(shm::kKeepPriority, shm::parse_policy("device:8")->pack());
  EXPECT_TRUE(eventually([&] { return in_force("event:2"); }));
  fake::clear();
  launch();
  EXPECT_EQ(fake::count(Id::cuStreamWaitValue64_v2), 0U);
  EXPECT_TRUE(in_force("event:2"));
}

// At priority 0 a job is not polled, since it holds nobody. Prevents: after the priority is raised
// inside a job, the job holds others until max_hold.
TEST_F(Change, AJobFromBeforeTheRaiseHoldsNobodyForLong) {
  attach("gate", 0);
  const Critical lower(session_, 0);
  const auto& gate = board().slots[static_cast<std::size_t>(lower.slot())].gate;
  fake::pause();
  CUstream stream = make_stream();
  launch(stream);
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  fake::finish_all();
  fake::resume();
  ASSERT_TRUE(shm::is_active(slot().job.load()));
  const auto begin = std::chrono::steady_clock::now();
  set_priority(5);
  EXPECT_TRUE(eventually([&] { return gate.load() == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "opened by max_hold";
  // Its next jobs are polled like those of any client that holds others.
  fake::pause();
  launch(stream);
  EXPECT_NE(gate.load(), 0U);
  fake::resume();
  EXPECT_TRUE(eventually([&] { return gate.load() == 0; })) << "nobody polls";
}

/// Launches into streams from threads of its own. The kernel's function identifies the launch.
class Feeders {
 public:
  static constexpr int kThreads = 4;

  Feeders() {
    for (int i = 0; i < kThreads; ++i) {
      threads_[static_cast<std::size_t>(i)] = std::thread([this, i] { feed(i); });
    }
  }
  ~Feeders() { stop(); }
  void stop() {
    ending_.store(true);
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  [[nodiscard]] std::uint64_t launched() const { return launched_.load(); }

  /// Launches of each thread, in the order in which they reached the driver.
  static std::map<std::uint64_t, std::vector<std::uint64_t>> seen() {
    std::map<std::uint64_t, std::vector<std::uint64_t>> seen;
    for (const fake::Call& call : fake::calls()) {
      if (call.id != Id::cuLaunchKernel) continue;
      seen[call.arguments[0] % kThreads].push_back(call.arguments[0] / kThreads);
    }
    return seen;
  }

 private:
  /// Two threads have a stream each, two share one.
  void feed(int index) {
    static CUstream shared = [] {
      CUstream stream = nullptr;
      ::cuStreamCreate(&stream, 0);
      return stream;
    }();
    CUstream stream = shared;
    if (index < 2) ::cuStreamCreate(&stream, 0);
    for (std::uint64_t i = 1; !ending_.load(); ++i) {
      auto* function = reinterpret_cast<CUfunction>(i * kThreads + static_cast<unsigned>(index));
      ::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
      launched_.fetch_add(1);
      if (i % 64 == 0) std::this_thread::sleep_for(1ms);
    }
  }

  std::atomic<bool> ending_{false};
  std::atomic<std::uint64_t> launched_{0};
  std::array<std::thread, kThreads> threads_;
};

// Changes from every policy to every other, while four threads launch and a critical job comes and
// goes.
TEST_F(Change, UnderLoadNoLaunchIsLostOrReordered) {
  constexpr std::array<const char*, 9> kPolicies{"device:50us", "none",    "device:1",
                                                 "gate",        "event:1", "sync:3",
                                                 "device:5",    "event:4", "sync:1"};
  attach("gate");
  Critical& critical = outrank();
  std::atomic<bool> ending{false};
  std::thread jobs([&] {
    while (!ending.load()) {
      critical.begin();
      std::this_thread::sleep_for(2ms);
      critical.end();
      std::this_thread::sleep_for(3ms);
    }
  });
  Feeders feeders;
  for (std::size_t step = 1; step < kPolicies.size(); ++step) {
    for (std::size_t i = 0; i < kPolicies.size(); ++i) {
      const std::uint64_t before = feeders.launched();
      set_policy(kPolicies[(i * step + step) % kPolicies.size()]);
      if (i % 4 == 0) set_priority(i == 0 ? 0 : 199);
      EXPECT_TRUE(eventually([&] { return feeders.launched() > before + 8; })) << "stands still";
    }
  }
  feeders.stop();
  ending.store(true);
  jobs.join();
  std::uint64_t reached = 0;
  for (const auto& [thread, launches] : Feeders::seen()) {
    reached += launches.size();
    for (std::size_t i = 0; i < launches.size(); ++i) {
      ASSERT_EQ(launches[i], i + 1) << "of thread " << thread;
    }
  }
  EXPECT_EQ(reached, feeders.launched());
  EXPECT_EQ(launches(), feeders.launched() + 1) << "and the one that attached";
  EXPECT_EQ(slot().skipped_waits.load(), 0U);
  EXPECT_EQ(slot().waiters.load(), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
