// The ends of jobs that hold nobody, in virtual time: the test is the driver, the GPU and the
// polling thread.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"
#include "tests/intercept/own_client.hpp"
#include "tests/intercept/stopped_clock.hpp"

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
std::uint64_t g_done_ns = 0;  ///< When the work that was given ends.
int g_asked = 0;

class UnheldJobs : public testing::Test {
 protected:
  UnheldJobs() {
    g_process.driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) {
      return CUDA_SUCCESS;
    };
    g_process.driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    g_process.driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    g_process.driver.cuStreamQuery = [](CUstream) {
      ++g_asked;
      return g_now_ns < g_done_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    g_asked = 0;
    stream_.key.handle = reinterpret_cast<CUstream>(16);
  }
  ~UnheldJobs() override { jobs_.forget(stream_); }

  void launch(std::uint64_t ns) {
    client_->slot().entries[0][shm::Count::kGated].fetch_add(1);
    jobs_.touch(stream_);
    g_done_ns = std::max(g_done_ns, g_now_ns.load()) + ns;
  }
  /// The polling thread looks every 10 ms, while there is something to look for.
  void pass(std::uint64_t ms) {
    for (std::uint64_t i = 0; i < ms; ++i) {
      g_now_ns += kMs;
      if (g_now_ns / kMs % 10 == 0 && jobs_.need_slow_polling()) jobs_.poll();
    }
  }
  std::uint64_t jobs() { return client_->slot().job_times.ended.load(); }
  std::uint64_t last_ms() { return (client_->slot().job_times.recent().ns.back() + kMs / 2) / kMs; }

  OwnClient client_{0};
  Jobs jobs_{*client_, idle_worker(), idle_worker(), false};
  OwnStream stream_;
};

// Prevents: a server with two steps in flight, which waits for events only, has one endless job
// while its priority is 0, though it pauses between its requests. Seen to fail without
// Jobs::unheld_wait_returned().
TEST_F(UnheldJobs, EndWhenTheLastWaitReturned) {
  for (std::uint64_t request = 1; request <= 20; ++request) {
    launch(4 * kMs);
    for (int step = 1; step < 12; ++step) {
      launch(4 * kMs);
      pass(4);
      jobs_.unheld_wait_returned();
      EXPECT_TRUE(client_.active());
    }
    pass(4);
    jobs_.unheld_wait_returned();
    EXPECT_EQ(jobs(), request - 1);
    pass(200);
    EXPECT_FALSE(client_.active());
    ASSERT_EQ(jobs(), request);
    EXPECT_EQ(last_ms(), 48U) << "not until the poll";
  }
}

TEST_F(UnheldJobs, WorkAfterTheLastWaitIsInTheJob) {
  launch(4 * kMs);
  pass(4);
  jobs_.unheld_wait_returned();
  launch(50 * kMs);
  pass(100);
  ASSERT_EQ(jobs(), 1U);
  EXPECT_GE(last_ms(), 54U);
  EXPECT_LE(last_ms(), 64U);
}

// Prevents: each best-effort process is polled.
TEST_F(UnheldJobs, NobodyLooksWhereTheProgramDoesNotWait) {
  launch(4 * kMs);
  pass(1000);
  EXPECT_EQ(g_asked, 0);
  EXPECT_TRUE(client_.active());
  Jobs::Synchronising(jobs_).returned(CUDA_SUCCESS, &stream_);
  EXPECT_FALSE(client_.active());
}

// Prevents: a program that launches on is asked about.
TEST_F(UnheldJobs, NobodyAsksWhileTheProgramLaunches) {
  for (int i = 0; i < 1000; ++i) {
    launch(kMs / 2);
    jobs_.unheld_wait_returned();
    pass(5);
  }
  EXPECT_LE(g_asked, 0);
}

}  // namespace
}  // namespace sluice::intercept::test
