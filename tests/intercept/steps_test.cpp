// A program that is never idle has steps, and the gates below open in them for a window: with the
// hooks, on the recording driver.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "tests/intercept/above.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

/// A server with two steps in flight. A second thread is the GPU: a step takes 4 ms, and the last
/// one that was given has no end, so that the GPU is never idle, however late the program is.
class StepsOf : public Above {
 protected:
  static constexpr int kLaunches = 8;

  void start() {
    setenv("SLUICE_PREDICT", "0", 1);
    attach("gate", 5);
    low_.emplace(session_, 0);
    below().policy.store(shm::kDefaultPolicy.pack());
    for (CUevent& event : events_) ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
    stream_ = make_stream();
    fake::pause();
    gpu_ = std::thread([this] {
      while (!done_) {
        std::this_thread::sleep_for(4ms);
        if (given_ <= finished_ + (drains_ ? 0 : 1)) continue;
        ++finished_;
        fake::finish(stream_, kLaunches);
      }
    });
  }
  void TearDown() override {
    done_ = true;
    if (gpu_.joinable()) gpu_.join();
    fake::resume();
    Above::TearDown();
  }
  void give() {
    if (busy_below_) below().busy_ns.store(base::monotonic_ns());
    for (int i = 0; i < kLaunches; ++i) ASSERT_EQ(launch(stream_), CUDA_SUCCESS);
    ASSERT_EQ(::cuEventRecord(events_[given_ % events_.size()], stream_), CUDA_SUCCESS);
    ++given_;
  }
  /// The step before the last one that was given.
  void wait() {
    const std::size_t step = static_cast<std::size_t>(given_) - 2;
    ASSERT_EQ(::cuEventSynchronize(events_[step % events_.size()]), CUDA_SUCCESS);
  }
  void step() {
    give();
    if (given_ < 2) return;
    wait();
    open_ += closed() ? 0 : 1;
  }
  [[nodiscard]] const shm::StepTimes& steps() { return slot().steps; }
  [[nodiscard]] shm::StepState state() { return static_cast<shm::StepState>(steps().state.load()); }
  [[nodiscard]] bool in_job() {
    return shm::is_active(slot().job.load()) || shm::is_active(slot().open_job.load());
  }

  CUstream stream_ = nullptr;
  std::array<CUevent, 4> events_{};
  std::atomic<std::uint64_t> given_{0};
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> drains_{false};
  bool busy_below_ = true;
  int open_ = 0;  ///< Waits after which the gates were open.

 private:
  std::atomic<bool> done_{false};
  std::thread gpu_;
};

// Prevents: windows in which nobody runs, which show that they cost nothing, and become long.
TEST_F(StepsOf, ForThoseWhoDoNothingThereAreNoWindows) {
  busy_below_ = false;
  start();
  for (int i = 0; i < 300; ++i) step();
  EXPECT_EQ(steps().windows.load(), 0U);
  EXPECT_EQ(state(), shm::StepState::kWindows) << "they are known, and begin with the first launch";
  busy_below_ = true;
  for (int i = 0; i < 300 && steps().windows.load() < 3; ++i) step();
  EXPECT_GE(steps().windows.load(), 3U);
}

// Prevents: two waits without work between them are a step that takes no time, and no window opens
// for the rest of the process.
TEST_F(StepsOf, WaitsWithoutWorkEndNone) {
  start();
  for (int i = 0; i < 60; ++i) step();
  const std::uint64_t ended = steps().ended.load();
  ASSERT_GT(ended, 0U);
  const CUstream idle = make_stream();
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(300us);
    ASSERT_EQ(::cuStreamSynchronize(idle), CUDA_SUCCESS);
  }
  EXPECT_LE(steps().ended.load(), ended + 2) << "those of the work that is left";
  for (int i = 0; i < 1000 && steps().windows.load() < 20; ++i) step();
  EXPECT_GE(steps().windows.load(), 20U);
}

TEST_F(StepsOf, AProgramThatIsNeverIdleHasWindows) {
  start();
  for (int i = 0; i < 1000 && steps().windows.load() < 20; ++i) step();
  EXPECT_TRUE(in_job()) << "it is one job";
  EXPECT_GE(steps().windows.load(), 20U);
  EXPECT_GE(open_, 10) << "after a wait";
  EXPECT_GE(steps().open_ns.load(), 15 * kMs);
  EXPECT_EQ(state(), shm::StepState::kWindows);
  EXPECT_GE(steps().kinds[0].p50_us.load(), 3000U);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(eventually([this] { return closed(); })) << "a window has an end";
    step();
  }
  // The last job ends, whether a window is open or not.
  drains_ = true;
  EXPECT_TRUE(eventually([this] { return finished_ == given_; }));
  ASSERT_EQ(::cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([this] { return !in_job(); }));
  EXPECT_FALSE(closed());
}

// Prevents: the gates close between two steps of a block in which they should stay open, or stay
// open in one with closed gates.
TEST_F(StepsOf, WhereTheHostIsSlowGatesStayOpenForBlocks) {
  start();
  int open = 0;
  int closed_again = 0;
  int longest = 0;
  bool tried = false;
  for (int i = 0; i < 2000 && (longest < 5 || closed_again < 5 || !tried); ++i) {
    give();
    std::this_thread::sleep_for(6ms);
    if (given_ < 2) continue;
    wait();
    const bool is_open = !closed();
    if (!is_open && open >= 5) ++closed_again;
    open = is_open ? open + 1 : 0;
    longest = std::max(longest, open);
    tried = tried || state() == shm::StepState::kTriesOpen;
  }
  EXPECT_GE(longest, 5);
  EXPECT_GE(closed_again, 5);
  EXPECT_TRUE(tried);
}

TEST_F(StepsOf, SwitchedOffGatesStayClosed) {
  setenv("SLUICE_GIVE", "0", 1);
  start();
  for (int i = 0; i < 1000 && steps().ended.load() <= 50; ++i) step();
  EXPECT_GT(steps().ended.load(), 50U);
  EXPECT_EQ(steps().windows.load(), 0U);
  EXPECT_EQ(state(), shm::StepState::kNoWindow);
}

TEST_F(StepsOf, ATargetOfStepsIsTakenUp) {
  start();
  sluice_set_target("step p99=1s");
  for (int i = 0; i < 1000 && steps().windows.load() < 20; ++i) step();
  EXPECT_GE(steps().windows.load(), 20U);
  EXPECT_EQ(slot().target_ns.load(), 1000 * kMs);
  EXPECT_GT(slot().target_jobs.load(), 20U);
  // A target of jobs, which a job that does not end cannot keep. It leaves windows all the same.
  sluice_set_target("p99=20ms");
  EXPECT_TRUE(eventually([this] { return closed(); }));
  const std::uint32_t windows = steps().windows.load();
  for (int i = 0; i < 3000 && steps().windows.load() < windows + 3; ++i) step();
  EXPECT_GE(steps().windows.load(), windows + 3);
}

// Marked jobs are what the program says.
TEST_F(StepsOf, MarkedJobsHaveNone) {
  start();
  const std::uint64_t job = sluice_job_begin(0);
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(steps().ended.load(), 0U);
  EXPECT_EQ(steps().windows.load(), 0U);
  sluice_job_end(job);
}

// Prevents: a crash, or a wait that never returns. A program must not do that, and may all the
// same.
TEST_F(StepsOf, AnEventMayEndWhileAnotherThreadWaitsForIt) {
  start();
  for (int i = 0; i < 30; ++i) step();
  drains_ = true;
  for (int i = 0; i < 20; ++i) {
    give();
    CUevent event = events_[(given_ - 1) % events_.size()];
    const std::size_t before = fake::count(fake::Id::cuEventSynchronize);
    std::thread waits([event] { ::cuEventSynchronize(event); });
    EXPECT_TRUE(eventually([&] { return fake::count(fake::Id::cuEventSynchronize) > before; }));
    ::cuEventDestroy_v2(event);
    waits.join();
    ASSERT_EQ(::cuEventCreate(&events_[(given_ - 1) % events_.size()], 0), CUDA_SUCCESS);
  }
  EXPECT_TRUE(eventually([this] { return !in_job(); })) << "its work is done";
}

// Prevents: `status` shows a trial of the time when the program had jobs, for ever.
TEST_F(StepsOf, TheLawOfJobsIsNotShownBesideThem) {
  start();
  drains_ = true;
  const auto shown = [this] { return shm::CloseWord::unpack(slot().close_state.load()).state; };
  for (int i = 0; i < 100 && shown() == shm::CloseState::kUnknown; ++i) {
    give();
    ASSERT_TRUE(eventually([this] { return finished_ == given_; }));
    ASSERT_EQ(::cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  ASSERT_NE(shown(), shm::CloseState::kUnknown);
  drains_ = false;
  for (int i = 0; i < 200 && steps().ended.load() == 0; ++i) step();
  ASSERT_GT(steps().ended.load(), 0U);
  EXPECT_EQ(shown(), shm::CloseState::kUnknown);
}

// Prevents: a fault of the driver ends a step, or a wait for an event that this process never
// recorded (of another process) does.
TEST_F(StepsOf, WaitsForNothingOfItsOwnEndNone) {
  start();
  for (int i = 0; i < 40; ++i) step();
  const std::uint64_t ended = steps().ended.load();
  CUevent foreign = nullptr;
  ASSERT_EQ(::cuEventCreate(&foreign, 0), CUDA_SUCCESS);
  give();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(::cuEventSynchronize(foreign), CUDA_SUCCESS);
    std::this_thread::sleep_for(300us);
  }
  EXPECT_EQ(steps().ended.load(), ended);
  fake::answer(fake::Id::cuEventSynchronize, CUDA_ERROR_ILLEGAL_ADDRESS);
  give();
  ::cuEventSynchronize(events_[(given_ - 1) % events_.size()]);
  EXPECT_EQ(steps().ended.load(), ended);
}

}  // namespace
}  // namespace sluice::intercept::test
