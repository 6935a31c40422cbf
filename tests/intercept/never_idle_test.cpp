// A program that is never idle leaves those below some windows, whatever its jobs are like: with
// the hooks, on the recording driver. Prevents: best effort gets nothing for as long as somebody
// else slows the critical program down.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.hpp"
#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "tests/intercept/above.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

/// Jobs of 1 ms, the next one straight behind each. A second thread is the GPU, and keeps the host
/// waiting, so that closing later is seldom tried.
class NeverIdle : public Above {
 protected:
  void start(const char* give = "5%") {
    setenv("SLUICE_GIVE", give, 1);
    setenv("SLUICE_PREDICT", "0", 1);
    attach("gate", 5);
    low_.emplace(session_, 0);
    below().policy.store(shm::kDefaultPolicy.pack());
    fake::pause();
    gpu_ = std::thread([this] {
      while (!done_) {
        if (!given_) {
          std::this_thread::sleep_for(20us);
          continue;
        }
        std::this_thread::sleep_for(1ms);
        given_ = false;
        fake::finish_all();
      }
    });
  }
  void TearDown() override {
    done_ = true;
    if (gpu_.joinable()) gpu_.join();
    fake::resume();
    Above::TearDown();
  }
  void job(bool marked = false) {
    if (busy_below_) below().busy_ns.store(base::monotonic_ns());
    const std::uint64_t id = marked ? sluice_job_begin(0) : 0;
    ASSERT_EQ(kernel(7), CUDA_SUCCESS);
    open_at_begin_ += closed() ? 0 : 1;
    given_ = true;
    ASSERT_EQ(::cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    if (marked) sluice_job_end(id);
  }
  /// Runs jobs until so many windows have opened, for some seconds at most. Returns how many have.
  std::uint32_t jobs_until(std::uint32_t windows, bool marked = false) {
    const std::uint64_t end = base::monotonic_ns() + 20'000 * kMs;
    while (this->windows() < windows && base::monotonic_ns() < end) job(marked);
    return this->windows();
  }
  std::uint32_t windows() { return slot().steps.windows.load(); }
  shm::StepState state() { return static_cast<shm::StepState>(slot().steps.state.load()); }
  bool in_job() { return shm::has_job(slot()); }

  bool busy_below_ = true;
  int open_at_begin_ = 0;

 private:
  std::atomic<bool> given_{false};
  std::atomic<bool> done_{false};
  std::thread gpu_;
};

TEST_F(NeverIdle, JobsStraightBehindEachOtherLeaveWindows) {
  start();
  EXPECT_GE(jobs_until(10), 10U);
  EXPECT_GE(open_at_begin_, 5);
  EXPECT_GE(slot().steps.open_ns.load(), 8 * kMs);
  EXPECT_EQ(state(), shm::StepState::kWindows);
  EXPECT_GE(slot().steps.window_us.load(), 1000U);
  for (int i = 0; i < 20 && !closed(); ++i) job();
  ASSERT_EQ(kernel(7), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([this] { return closed(); })) << "a window has an end";
  fake::finish_all();
  ASSERT_EQ(::cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([this] { return !in_job() && !closed(); }));
  EXPECT_TRUE(eventually([this] { return state() == shm::StepState::kNone; })) << "it is idle now";
}

TEST_F(NeverIdle, MarkedJobsDoSoToo) {
  start();
  EXPECT_GE(jobs_until(5, true), 5U);
  EXPECT_FALSE(in_job() || closed());
}

TEST_F(NeverIdle, AJobWithoutAnEndDoesSoToo) {
  start();
  const std::uint64_t begin = base::monotonic_ns();
  ASSERT_EQ(kernel(7), CUDA_SUCCESS);
  EXPECT_TRUE(eventually(
      [this] {
        below().busy_ns.store(base::monotonic_ns());
        launch();
        return windows() >= 3;
      },
      20s));
  EXPECT_GE(base::monotonic_ns() - begin, 1000 * kMs) << "at first it may be idle soon";
  EXPECT_TRUE(in_job());
  EXPECT_TRUE(eventually([this] { return closed(); }));
}

TEST_F(NeverIdle, ATargetThatCannotBeKeptChangesNothing) {
  start();
  slot().requested_target.store(shm::parse_target("p99=100us")->pack());
  EXPECT_GE(jobs_until(5), 5U);
  EXPECT_GT(slot().target_jobs.load(), 100U) << "those in windows are counted, too";
}

// Each job waits for its kernel, and is little else.
TEST_F(NeverIdle, SaysHowLongItWaitsForTheGpu) {
  start();
  EXPECT_TRUE(eventually([this] {
    job();
    return slot().items.load() >= 64;
  }));
  EXPECT_LE(slot().items_waited_ns.load(), slot().items_ns.load());
  EXPECT_GE(slot().items_waited_ns.load(), slot().items_ns.load() / 4);
}

// `sluice set --give` at run time.
TEST_F(NeverIdle, WhatIsGivenMayChange) {
  start();
  EXPECT_GE(jobs_until(5), 5U);
  EXPECT_TRUE(eventually([this] { return slot().gives_known.load() == 1; }, 10s));
  slot().requested_give.store(shm::pack_give(0));
  job();
  EXPECT_TRUE(eventually([this] {
    job();
    return slot().gives_known.load() == 0;
  }));
  const std::uint32_t before = windows();
  const std::uint64_t end = base::monotonic_ns() + 2000 * kMs;
  while (base::monotonic_ns() < end) job();
  EXPECT_LE(windows(), before + 1) << "the one that was open";
  slot().requested_give.store(shm::pack_give(100));
  EXPECT_GE(jobs_until(before + 5), before + 5);
}

// Prevents: best effort that begins next to such a program never runs, and so counts as idle.
TEST_F(NeverIdle, WhoeverIsHeldIsSomebody) {
  busy_below_ = false;
  start();
  below().job.store(1);
  EXPECT_GE(jobs_until(3), 3U);
}

TEST_F(NeverIdle, ForThoseWhoDoNothingThereAreNone) {
  busy_below_ = false;
  start();
  const std::uint64_t end = base::monotonic_ns() + 2500 * kMs;
  while (base::monotonic_ns() < end) job();
  EXPECT_EQ(windows(), 0U);
}

TEST_F(NeverIdle, OnlyClosingAtFirstLeavesNothing) {
  start("0");
  const std::uint64_t end = base::monotonic_ns() + 2500 * kMs;
  while (base::monotonic_ns() < end) job();
  EXPECT_EQ(windows(), 0U);
  EXPECT_EQ(open_at_begin_, 0);
}

}  // namespace
}  // namespace sluice::intercept::test
