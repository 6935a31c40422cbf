// Launches of several threads into one stream: what the lock of the stream guards.
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "intercept/driver/process.hpp"
#include "intercept/pacing/pacer.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

std::atomic<int> g_waits{0};

/// A client below another one. The driver counts the waits on the gate.
class LaunchLocks : public testing::Test {
 protected:
  static constexpr int kLaunches = 200'000;  // of each thread

  explicit LaunchLocks(const char* policy = "device:4") : client_(0, policy) {
    g_waits.store(0);
    g_process.driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
      *value = 1;
      return CUDA_SUCCESS;
    };
    g_process.driver.cuCtxGetCurrent = [](CUcontext* context) {
      *context = reinterpret_cast<CUcontext>(1);
      return CUDA_SUCCESS;
    };
    g_process.driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    g_process.driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    g_process.driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) {
      return CUDA_SUCCESS;
    };
    g_process.driver.cuMemHostRegister_v2 = [](void*, std::size_t, unsigned) {
      return CUDA_SUCCESS;
    };
    g_process.driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* at, void*, unsigned) {
      *at = 0x1000;
      return CUDA_SUCCESS;
    };
    g_process.driver.cuStreamWaitValue64_v2 = [](CUstream, CUdeviceptr, cuuint64_t, unsigned) {
      g_waits.fetch_add(1);
      return CUDA_SUCCESS;
    };
    stream_.pools = &no_events_;  // so no launch is measured
    client_->set_obeys(true);
    client_->slot().outranked.store(1);
    work_.function = reinterpret_cast<CUfunction>(0x10);
  }
  void launch() {
    Pacer::Place place;
    pacer_.before(Entry::cuLaunchKernel, stream_, nullptr, work_, place);
  }
  void launch_from_two_threads() {
    std::atomic<int> ready{0};
    const auto launches = [&] {
      ready.fetch_add(1);
      while (ready.load() != 2) continue;
      for (int i = 0; i < kLaunches; ++i) launch();
    };
    std::thread other(launches);
    launches();
    other.join();
  }
  void set_policy(const char* policy) {
    client_->slot().requested_policy.store(shm::parse_policy(policy)->pack());
    client_->take_policy();
  }

  OwnClient client_;
  GateMemory memory_{*client_, client_->seat().writable};
  Streams streams_;
  Pacer pacer_{*client_, memory_, streams_, idle_worker(), true};
  ContextEvents no_events_{idle_worker()};
  Stream stream_;
  Work work_;
};

class LaunchLocksInTime : public LaunchLocks {
 protected:
  LaunchLocksInTime() : LaunchLocks("device:200us") {
    pacer_.durations().find(work_)->add_sample(1000);
  }
};

// Prevents: a launch that spends from an account while another thread does.
TEST_F(LaunchLocks, ALaunchWaitsForTheOneOfAnotherThread) {
  std::atomic<bool> launched{false};
  stream_.lock.lock();
  std::thread other([&] {
    launch();
    launched.store(true);
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(launched.load());
  EXPECT_EQ(stream_.launches, 0U);
  stream_.lock.unlock();
  other.join();
  EXPECT_EQ(stream_.launches, 1U);
}

// Prevents: two launches that count as one, so that a spacing has a launch too many.
TEST_F(LaunchLocks, TwoThreadsThatShareAStreamLeaveNoWaitOut) {
  launch_from_two_threads();
  EXPECT_EQ(g_waits.load(), 2 * kLaunches / 4);
}

// Prevents: an account that differs from what its streams have spent.
TEST_F(LaunchLocksInTime, TwoThreadsThatShareAStreamSpendEachLaunch) {
  launch_from_two_threads();
  EXPECT_EQ(g_waits.load(), (2 * kLaunches - 1) / 200);
  pacer_.end(stream_, true);
  stream_.restart(stream_.key, {stream_.context}, no_events_);
  g_waits.store(0);
  for (int i = 0; i < 200; ++i) launch();
  EXPECT_EQ(g_waits.load(), 0) << "the account is not empty";
  launch();
  EXPECT_EQ(g_waits.load(), 1) << "the account was less than empty";
}

// Prevents: a launch that is taken for the second one of a spacing that ended with its policy.
TEST_F(LaunchLocks, TheFirstLaunchUnderAPolicyBeginsASpacing) {
  launch();
  launch();
  ASSERT_EQ(g_waits.load(), 1);
  for (const char* policy : {"device:3", "device:200us", "device:3", "device:4"}) {
    set_policy(policy);
    g_waits.store(0);
    launch();
    EXPECT_EQ(g_waits.load(), 1) << policy;
    launch();
    const int unknown = client_->policy().spacing.is_time() ? 1 : 0;  // each gets a wait
    EXPECT_EQ(g_waits.load(), 1 + unknown) << policy;
  }
}

// Prevents: a thread that takes the processor from the very thread it waits for.
TEST(LaunchLock, AThreadThatWaitsForLongSleeps) {
  LaunchLock lock;
  lock.lock();
  std::atomic<bool> has_it{false};
  std::chrono::nanoseconds spent{0};
  std::thread waiting([&] {
    const std::lock_guard held(lock);
    has_it.store(true);
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    spent = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  });
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(has_it.load());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  waiting.join();
  EXPECT_TRUE(has_it.load());
  EXPECT_LT(spent, 100ms);
  EXPECT_TRUE(lock.try_lock());
}

}  // namespace
}  // namespace sluice::intercept::test
