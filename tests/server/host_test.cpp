// The threads of the dispatcher's host: a round that runs in the caller's thread must not be lost,
// overlap with another one, or outlive the host.
#include "server/requests/host.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using test::eventually;
using namespace std::chrono_literals;

/// Holds whoever calls pass() until open().
class Barrier {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

class HostThreads : public testing::Test {
 protected:
  /// A host whose first round, which its own thread runs, is over: this thread can run one.
  void start(Host::Round round) {
    std::atomic<bool> ran_there = false;
    std::atomic<bool> ran_here = false;
    host_->start([&, this, round = std::move(round), here = std::this_thread::get_id()] {
      if (rounds_ != 0) {
        ++rounds_;
        return round();
      }
      if (std::this_thread::get_id() != here) {
        ran_there = true;
      } else if (ran_there) {
        ran_here = true;
      }
      return scheduler::kNoDeadline;
    });
    ASSERT_TRUE(eventually([&] {
      host_->wake_here();
      return ran_here.load();
    }));
    rounds_ = 1;
  }

  std::atomic<int> rounds_ = 0;
  std::unique_ptr<Host> host_ = threads();
};

// Prevents: each request wakes a thread for its round.
TEST_F(HostThreads, RunsARoundInTheThreadThatAsksForIt) {
  std::thread::id ran;
  start([&] {
    ran = std::this_thread::get_id();
    return scheduler::kNoDeadline;
  });
  host_->wake_here();
  EXPECT_EQ(ran, std::this_thread::get_id());
  host_->stop();
  EXPECT_EQ(rounds_, 2);
}

// Prevents: rounds that overlap, which the dispatcher's lists do not bear, and a message that no
// round sees.
TEST_F(HostThreads, NoTwoRoundsOverlapAndNoMessageIsLost) {
  constexpr int kEach = 3000;
  std::atomic<int> left = 0;
  std::atomic<int> inside = 0;
  std::atomic<bool> overlapped = false;
  start([&] {
    if (inside++ != 0) overlapped = true;
    std::this_thread::yield();
    left = 0;
    --inside;
    return scheduler::kNoDeadline;
  });
  std::atomic<bool> lost = false;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, here = i % 2 == 0] {
      for (int k = 0; k < kEach; ++k) {
        ++left;
        here ? host_->wake_here() : host_->wake();
      }
    });
  }
  for (std::thread& each : callers) each.join();
  lost = !eventually([&] { return left == 0; });
  host_->stop();
  EXPECT_FALSE(lost);
  EXPECT_FALSE(overlapped);
}

// Prevents: a message that comes during the round of a caller waits for the next request.
TEST_F(HostThreads, AWakeDuringARoundLeadsToAnotherRound) {
  Barrier barrier;
  start([&] {
    if (rounds_ == 2) barrier.pass();
    return scheduler::kNoDeadline;
  });
  std::thread caller([&] { host_->wake_here(); });
  barrier.wait_for_one();
  host_->wake();
  host_->wake_here();  // Returns, although a round runs.
  EXPECT_EQ(rounds_, 2);
  barrier.open();
  caller.join();
  EXPECT_TRUE(eventually([this] { return rounds_ >= 3; }));
}

// Prevents: a caller that other clients keep busy never returns to its own connection.
TEST_F(HostThreads, ACallerRunsAFewRoundsOnly) {
  std::atomic<bool> busy = true;
  std::atomic<int> by_caller = 0;
  start([&, caller = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == caller && ++by_caller == 100) busy = false;
    if (busy) host_->wake();
    return scheduler::kNoDeadline;
  });
  host_->wake_here();
  EXPECT_LT(by_caller, 100);
  const int before = rounds_;
  EXPECT_TRUE(eventually([&] { return rounds_ > before; })) << "the other thread goes on";
  busy = false;
}

// Prevents: a deadline that a caller's round finds passes without a round.
TEST_F(HostThreads, TheTimeThatACallersRoundReturnsIsKept) {
  start([&] {
    constexpr std::uint64_t kSoonNs = 20'000'000;
    return rounds_ == 2 ? base::monotonic_ns() + kSoonNs : scheduler::kNoDeadline;
  });
  host_->wake_here();
  EXPECT_TRUE(eventually([this] { return rounds_ == 3; }));
}

// Prevents: a round that uses a dispatcher which is gone, and an end that waits indefinitely.
TEST_F(HostThreads, StopWaitsForTheRoundOfACaller) {
  Barrier barrier;
  std::atomic<bool> over = false;
  start([&] {
    barrier.pass();
    std::this_thread::sleep_for(50ms);
    host_->wake();  // There is more to do, and nobody does it.
    over = true;
    return scheduler::kNoDeadline;
  });
  std::thread caller([&] { host_->wake_here(); });
  barrier.wait_for_one();
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    barrier.open();
  });
  host_->stop();
  EXPECT_TRUE(over);
  host_->wake_here();
  EXPECT_EQ(rounds_, 2) << "no round after the end";
  caller.join();
  opener.join();
}

}  // namespace
}  // namespace sluice::server
