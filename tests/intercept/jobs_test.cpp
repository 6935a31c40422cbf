// Jobs: a critical process whose work is not detected is not protected, and one whose job never
// ends holds everybody.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "sluice/sluice.h"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

class JobsOf : public Session {
 protected:
  bool active() { return shm::is_active(slot().job.load()); }
  bool becomes_idle() {
    return eventually([&] { return !active(); });
  }
  /// Whether the job stays open for some polls.
  bool stays_active() {
    std::this_thread::sleep_for(30ms);
    return active();
  }
};

TEST_F(JobsOf, AJobBeginsWithTheFirstLaunchAndEndsWithTheSynchronise) {
  attach("gate", 5);
  const Critical lower(session_, 0);  // a client below us, whose gate shows the hold
  const auto& gate = board().slots[static_cast<std::size_t>(lower.slot())].gate;
  EXPECT_FALSE(active());
  CUstream stream = make_stream();
  fake::pause();
  launch(stream);
  EXPECT_TRUE(active());
  EXPECT_NE(gate.load(), 0U);
  EXPECT_TRUE(stays_active()) << "ended while its work was outstanding";
  fake::resume();
  fake::pause();
  launch(stream);
  fake::finish(stream, 1);
  ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  EXPECT_EQ(gate.load(), 0U);
  launch(stream);
  EXPECT_TRUE(active()) << "the next job, of a stream that the thread remembers";
}

/// Calls by which a program learns that work is done, other than those that synchronise.
CUresult wait_by(const std::string& call, CUstream stream, CUevent event) {
  char host = 0;
  if (call == "cuEventSynchronize") return ::cuEventSynchronize(event);
  if (call == "cuEventQuery") return ::cuEventQuery(event);
  if (call == "cuStreamQuery") return ::cuStreamQuery(stream);
  if (call == "cuMemcpy") return ::cuMemcpy(0x1000, 0x2000, 8);
  return ::cuMemcpyDtoH_v2(&host, 0x1000, 1);
}
class JobsThatWaitBy : public JobsOf, public testing::WithParamInterface<const char*> {};

// Prevents: the jobs of a program that waits by an event, one after the other, are one job without
// an end: the poller does not look while a program launches.
TEST_P(JobsThatWaitBy, EndOneByOne) {
  attach("gate", 5);
  CUstream stream = make_stream();
  CUevent event = nullptr;
  ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
  const std::uint64_t before = slot().job.load();
  constexpr int kJobs = 100;
  for (int i = 0; i < kJobs; ++i) {
    for (int k = 0; k < 3; ++k) launch(stream);
    ASSERT_EQ(::cuEventRecord(event, stream), CUDA_SUCCESS);
    ASSERT_EQ(wait_by(GetParam(), stream, event), CUDA_SUCCESS);
    std::this_thread::sleep_for(500us);
  }
  EXPECT_GT(slot().job.load() - before, kJobs);  // half of them at least: a begin and an end each
}

INSTANTIATE_TEST_SUITE_P(All, JobsThatWaitBy,
                         testing::Values("cuEventSynchronize", "cuEventQuery", "cuStreamQuery",
                                         "cuMemcpy", "cuMemcpyDtoH_v2"));

// Prevents: a program that asks whether an event is done ends the job whose work it waits for.
TEST_F(JobsOf, AWaitForOtherWorkDoesNotEndAJob) {
  attach("gate", 5);
  ASSERT_TRUE(becomes_idle());
  CUstream stream = make_stream();
  CUevent event = nullptr;
  ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
  fake::pause();
  launch(stream);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(::cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_TRUE(stays_active());
  fake::resume();
  EXPECT_TRUE(becomes_idle());
}

TEST_F(JobsOf, AJobBeginsWithACopyToTheDevice) {
  attach("gate", 5);
  ASSERT_TRUE(becomes_idle());
  CUstream stream = make_stream();
  fake::pause();
  char host = 0;
  ::cuMemcpyHtoDAsync_v2(0x1000, &host, 1, stream);
  // A poll between the hook and the driver may end the job, and a later one begins it again.
  EXPECT_TRUE(eventually([&] { return active(); }));
  fake::resume();
  ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  const std::uint64_t jobs = slot().job.load();
  ::cuMemcpyHtoD_v2(0x1000, &host, 1);
  EXPECT_GT(slot().job.load(), jobs);
}

TEST_F(JobsOf, OneOfTwoStreamsDoesNotEndAJob) {
  attach("gate", 5);
  CUstream first = make_stream();
  CUstream second = make_stream();
  fake::pause();
  launch(first);
  launch(second);
  fake::finish(first, 1);
  ASSERT_EQ(::cuStreamSynchronize(first), CUDA_SUCCESS);
  EXPECT_TRUE(stays_active());
  fake::finish(second, 1);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(active());
}

TEST_F(JobsOf, WithoutASynchroniseThePollSeesTheEnd) {
  attach("gate", 5);
  CUstream stream = make_stream();
  fake::pause();
  launch(stream);
  EXPECT_TRUE(stays_active());
  fake::resume();
  EXPECT_TRUE(becomes_idle());
}

// Prevents: `sluice top` shows another job's duration, or those of overlapping jobs twice.
TEST_F(JobsOf, TheDurationsOfTheLast64JobsAreKept) {
  attach("gate", 5);
  ASSERT_TRUE(becomes_idle());
  const std::uint64_t before = slot().job_times.ended.load();
  // 0: the job has not ended.
  const auto at = [&](std::uint64_t job) {
    const shm::JobTimes::Recent recent = slot().job_times.recent();
    const std::uint64_t first = recent.ended - recent.ns.size();
    return before + job < recent.ended ? recent.ns.at(before + job - first) : 0U;
  };
  const std::uint64_t outer = sluice_job_begin(0);
  const std::uint64_t inner = sluice_job_begin(0);
  std::this_thread::sleep_for(5ms);
  sluice_job_end(inner);
  EXPECT_EQ(at(0), 0U) << "the outer job is not over";
  sluice_job_end(outer);
  EXPECT_GE(at(0), 5'000'000U);
  EXPECT_EQ(at(1), 0U) << "two that overlap are one";
  for (std::uint64_t job = 1; job < shm::JobTimes::kKept; ++job) {
    sluice_job_end(sluice_job_begin(0));
    EXPECT_NE(at(job), 0U) << job;
  }
  EXPECT_GE(at(0), 5'000'000U) << "the first of 64";
  EXPECT_EQ(slot().job_times.recent().ns.size(), 64U);
  sluice_job_end(sluice_job_begin(0));
  EXPECT_LT(slot().job_times.recent().ns.front(), 5'000'000U) << "no longer of the last 64";
}

// No other thread can query a thread's own default stream, so the poller queries the legacy stream
// instead.
TEST_F(JobsOf, APerThreadStreamIsSeenToEnd) {
  attach("gate", 5);
  fake::pause();
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  EXPECT_TRUE(stays_active());
  fake::resume();
  EXPECT_TRUE(becomes_idle());
  const std::size_t events = fake::living_events();
  for (int i = 0; i < 20; ++i) {
    ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    ASSERT_EQ(::cuStreamSynchronize_ptsz(nullptr), CUDA_SUCCESS);
    EXPECT_FALSE(active());
  }
  EXPECT_EQ(fake::living_events(), events) << "each job left an event behind";
}

// Thread A waits at the gate; thread B synchronises, which ends the job. When A's launch proceeds,
// a job must begin again, or nobody below is held for it.
TEST_F(JobsOf, ALaunchThatWasHeldOverTheEndOfItsJobBeginsAnother) {
  attach("gate", 5);
  Critical& above = outrank();
  CUstream stream = make_stream();
  fake::pause();
  above.begin();
  std::thread held([stream] { launch(stream); });
  EXPECT_TRUE(eventually([&] { return slot().waiters.load() == 1; }));
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  above.end();
  held.join();
  EXPECT_EQ(fake::outstanding(stream), 1U);
  EXPECT_TRUE(active());
}

TEST_F(JobsOf, ExplicitJobsMayOverlapAndEndOnce) {
  attach("gate", 5);
  ASSERT_TRUE(becomes_idle());
  const std::uint64_t first = sluice_job_begin(0);
  const std::uint64_t second = sluice_job_begin(0);
  EXPECT_NE(first, 0U);
  EXPECT_NE(first, second);
  sluice_job_end(first);
  sluice_job_end(first);  // again: ignored
  sluice_job_end(0);
  sluice_job_end(12345);  // nobody's
  EXPECT_TRUE(active()) << "the second job was ended with the first";
  sluice_job_end(second);
  EXPECT_FALSE(active());
}

TEST_F(JobsOf, TheFirstExplicitBeginSwitchesDetectionOff) {
  attach("gate", 5);
  sluice_job_end(sluice_job_begin(0));
  fake::pause();
  launch(make_stream());
  EXPECT_FALSE(active());
}

TEST_F(JobsOf, AnExplicitBeginTakesOverFromADetectedJobWithoutAGap) {
  attach("gate", 5);
  ASSERT_TRUE(becomes_idle());
  fake::pause();
  launch(make_stream());
  const std::uint64_t before = slot().job.load();
  const std::uint64_t job = sluice_job_begin(0);
  EXPECT_EQ(slot().job.load(), before) << "the gates were opened in between";
  sluice_job_end(job);
  EXPECT_FALSE(active());
}

TEST_F(JobsOf, AnExplicitJobMayBeginBeforeTheFirstLaunch) {
  choose("gate", 5);
  start_controller();
  const std::uint64_t job = sluice_job_begin(0);
  EXPECT_EQ(sluice_attached(), 1);
  EXPECT_TRUE(active());
  sluice_job_end(job);
  EXPECT_FALSE(active());
}

// The first launch of a graph takes milliseconds in the driver. Seen to fail: the graph, all of a
// job, ran with the gates open.
TEST_F(JobsOf, AGraphLaunchThatTakesTheDriverLongIsInAJob) {
  attach("gate", 5);
  CUstream stream = make_stream();
  const auto exec = reinterpret_cast<CUgraphExec>(0x1234);
  ::cuGraphLaunch(exec, stream);
  fake::pause();
  fake::finish_all();
  for (const bool synchronised : {false, true}) {
    launch(stream);
    EXPECT_TRUE(active());
    fake::stall(fake::Id::cuGraphLaunch);
    std::thread launching([=] {
      launch(stream);  // remembered by this thread
      ::cuGraphLaunch(exec, stream);
    });
    EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
    fake::finish_all();
    if (synchronised) {
      EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
    }
    EXPECT_TRUE(becomes_idle());
    fake::unstall();
    launching.join();
    EXPECT_EQ(fake::outstanding(stream), 1U);
    EXPECT_TRUE(active());
    fake::finish_all();
    EXPECT_TRUE(becomes_idle());
  }
}

// The driver blocks a query of a stream whose queue is full. Nothing that makes progress possible
// may wait for that query: no launch, no synchronise, and not the end of the process.
TEST_F(JobsOf, AQueryThatBlocksHoldsNobodyUp) {
  attach("gate", 5);
  CUstream asked = make_stream();
  CUstream other = make_stream();
  fake::pause();
  fake::stall(fake::Id::cuStreamQuery);
  launch(asked);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  fake::resume();
  launch(other);
  std::thread([] { launch(make_stream()); }).join();
  EXPECT_EQ(::cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  fake::unstall();
}

// The driver's answer about a stream is out of date once work has been given to the stream.
TEST_F(JobsOf, WorkGivenDuringTheQueryKeepsTheJobOpen) {
  attach("gate", 5);
  CUstream stream = make_stream();
  fake::stall(fake::Id::cuStreamQuery);
  launch(stream);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  launch(stream);  // answered after this one, so done; the next one is not
  fake::pause();
  launch(stream);
  fake::unstall();
  EXPECT_TRUE(stays_active());
  fake::resume();
  EXPECT_TRUE(becomes_idle());
}

// Jobs of priority 0 hold nobody, so no query and no event is spent on their end.
TEST_F(JobsOf, BestEffortJobsAreNotPolled) {
  attach("device:4");
  fake::pause();
  launch(make_stream());
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  EXPECT_TRUE(stays_active());
  EXPECT_EQ(fake::count(fake::Id::cuStreamQuery), 0U);
  EXPECT_EQ(fake::count(fake::Id::cuEventRecord), 0U);
  fake::resume();
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(active());
}

// Prevents: a copy without a launch or a synchronise after it holds the clients below until
// max_hold.
TEST_F(JobsOf, ACopyOnAPerThreadStreamIsSeenToEnd) {
  attach("gate", 5);
  ASSERT_TRUE(becomes_idle());
  char host = 0;
  ::cuMemcpyHtoDAsync_v2_ptsz(0x1000, &host, 1, nullptr);
  EXPECT_TRUE(becomes_idle());
}

// The end of a job on a per-thread stream is found without events: drivers that refuse them must
// not leave it open.
TEST_F(JobsOf, APerThreadStreamNeedsNoEvents) {
  attach("gate", 5);
  fake::answer(fake::Id::cuEventCreate, CUDA_ERROR_OUT_OF_MEMORY);
  fake::answer(fake::Id::cuEventRecord, CUDA_ERROR_OUT_OF_MEMORY);
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  EXPECT_TRUE(becomes_idle());
}

// Libraries retain and release the primary context around their use of it.
TEST_F(JobsOf, AReleaseOfAContextThatLivesOnEndsNothing) {
  attach("gate", 5);
  CUcontext context = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  fake::pause();
  launch(make_stream());
  ASSERT_EQ(::cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_TRUE(stays_active());
  ASSERT_EQ(::cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_TRUE(becomes_idle()) << "the last release ends the context, and its work";
}

// A synchronise of one context does not end the work of another one.
TEST_F(JobsOf, ASynchroniseEndsTheWorkOfItsContextOnly) {
  attach("gate", 5);
  CUcontext first = nullptr;
  ASSERT_EQ(::cuCtxGetCurrent(&first), CUDA_SUCCESS);
  CUstream there = make_stream();
  fake::pause();
  launch(there);
  CUcontext second = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  CUstream here = make_stream();
  launch(here);
  fake::finish(here, 1);
  ASSERT_EQ(::cuCtxSynchronize_v2(second), CUDA_SUCCESS);
  EXPECT_TRUE(stays_active());
  ASSERT_EQ(::cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_TRUE(stays_active()) << "a context took another one's work with it";
}

// Prevents: a launch that has counted itself, and is still inside the driver when another thread's
// synchronise ends the job, runs with the gates of others open. Seen to fail without look_back().
TEST_F(JobsOf, ALaunchInsideTheDriverAtTheEndOfItsJobBeginsAnother) {
  attach("gate", 5);
  CUstream stream = make_stream();
  ASSERT_TRUE(becomes_idle());
  std::thread late([stream] {
    // The poll finds launches at each look, so the thread goes on remembering the stream.
    for (int i = 0; i < 30; ++i) {
      launch(stream);
      std::this_thread::sleep_for(200us);
    }
    fake::pause();
    fake::stall(fake::Id::cuLaunchKernel);
    launch(stream);
  });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  fake::unstall();
  late.join();
  EXPECT_EQ(fake::outstanding(stream), 1U);
  EXPECT_TRUE(eventually([&] { return active(); }));
  fake::resume();
  EXPECT_TRUE(becomes_idle());
}

// Prevents: a thread that is blocked in cuCtxDestroy stops the ends of all jobs of the process.
// Seen to fail when it banned every query.
TEST_F(JobsOf, AJobEndsWhileAContextIsBeingDestroyed) {
  attach("gate", 5);
  CUcontext first = nullptr;
  ASSERT_EQ(::cuCtxGetCurrent(&first), CUDA_SUCCESS);
  CUstream here = make_stream();
  CUcontext ending = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&ending, 0, 0), CUDA_SUCCESS);
  fake::pause();
  launch(make_stream());
  ASSERT_EQ(::cuCtxSetCurrent(first), CUDA_SUCCESS);
  launch(here);
  fake::stall(fake::Id::cuCtxDestroy_v2);
  std::thread destroying([ending] { EXPECT_EQ(::cuCtxDestroy_v2(ending), CUDA_SUCCESS); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  EXPECT_TRUE(stays_active());
  fake::finish(here, 1);
  EXPECT_TRUE(becomes_idle());
  fake::unstall();
  destroying.join();
}

// A context that is destroyed takes its work with it.
TEST_F(JobsOf, ADestroyedContextEndsItsJobs) {
  attach("gate", 5);
  fake::pause();
  launch(make_stream());
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_TRUE(becomes_idle());
}

}  // namespace
}  // namespace sluice::intercept::test
