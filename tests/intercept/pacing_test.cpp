// The rules of the policies that hold on the host, by counts and order of driver calls on the
// recording driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "tests/intercept/launcher.hpp"
#include "tests/support/fast_clock.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;
using sluice::test::FastClock;
using sluice::test::kProgramPatience;

class Pacing : public Session {};

/// Driver calls that only a pacing client makes (the others come from job detection).
std::size_t pacing_calls() {
  return fake::count(Id::cuStreamGetId) + fake::count(Id::cuEventRecord) +
         fake::count(Id::cuEventQuery) + fake::count(Id::cuStreamWaitValue64_v2);
}

// Prevents: a closed gate that does not hold, and one that never opens again.
TEST_F(Pacing, AClosedGateHoldsOnTheHostAndReleases) {
  attach("gate");
  Critical& critical = outrank();
  critical.begin();
  {
    Launcher launcher(3, nullptr);
    EXPECT_TRUE(launcher.stops_after(0));
    EXPECT_EQ(fake::count(Id::cuLaunchKernel), 0U) << "a held launch reached the driver";
    EXPECT_EQ(slot().waiters.load(), 1U);
    critical.end();
    EXPECT_TRUE(eventually([&] { return launcher.done() == 3; }));
  }
  EXPECT_EQ(fake::count(Id::cuLaunchKernel), 3U);
  EXPECT_EQ(counted(Count::kGated), 4U) << "three, and the one that attached";
  EXPECT_EQ(counted(Count::kWaited), 1U);
  EXPECT_GT(counted(Count::kHeldNs), 0U);
  EXPECT_EQ(slot().waiters.load(), 0U);
}

TEST_F(Pacing, NoneNeverHolds) {
  attach("none");
  outrank().begin();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(counted(Count::kBypassPolicyNone), 2U);
  EXPECT_EQ(counted(Count::kHeldNs), 0U) << "held until max_hold opened the gate";
  EXPECT_EQ(pacing_calls(), 0U);
}

TEST_F(Pacing, GateAddsNoDriverCall) {
  attach("gate");
  outrank();
  for (int i = 0; i < 10; ++i) launch();
  EXPECT_EQ(pacing_calls(), 0U);
}

// Without a client above, nobody can close the gate, so nothing has to be spaced.
TEST_F(Pacing, NobodyPacesWhileNobodyOutranksIt) {
  attach("sync:1");
  for (int i = 0; i < 10; ++i) launch();
  EXPECT_EQ(pacing_calls(), 0U);
}

TEST_F(Pacing, SyncWaitsAfterEachNthLaunchOfAStream) {
  attach("sync:2");
  outrank();
  CUstream busy = make_stream();
  CUstream idle = make_stream();
  fake::pause();
  Launcher launcher(4, busy);
  EXPECT_TRUE(launcher.stops_after(1)) << "the second launch returns when the stream is done";
  EXPECT_EQ(fake::outstanding(busy), 2U);
  launch(idle);  // the first of its stream: not held by the other stream
  fake::finish(busy, 1);
  EXPECT_TRUE(launcher.stops_after(1)) << "one of two is still outstanding";
  fake::finish(busy, 1);
  EXPECT_TRUE(launcher.stops_after(3));
  fake::finish(busy, 2);
  EXPECT_TRUE(eventually([&] { return launcher.done() == 4; }));
}

TEST_F(Pacing, EventLetsTwoGroupsBeOutstanding) {
  attach("event:3");
  outrank();
  CUstream stream = make_stream();
  fake::pause();
  Launcher launcher(12, stream);
  EXPECT_TRUE(launcher.stops_after(6)) << "two groups of three, then the first must be done";
  fake::finish(stream, 2);
  EXPECT_TRUE(launcher.stops_after(6)) << "two thirds of a group";
  fake::finish(stream, 1);
  EXPECT_TRUE(launcher.stops_after(9));
  fake::finish(stream, 6);
  EXPECT_TRUE(eventually([&] { return launcher.done() == 12; }));
  std::set<std::uint64_t> events;
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuEventRecord) {
      events.insert(call.arguments[0]);
      EXPECT_EQ(call.arguments[1], reinterpret_cast<std::uint64_t>(stream));
    }
  }
  EXPECT_EQ(events.size(), 2U) << "one for each of the groups";
}

// Several threads may launch into one stream: each group's end must still be recorded, or the bound
// on outstanding work is lost.
TEST_F(Pacing, EventBoundHoldsForThreadsThatShareAStream) {
  attach("event:2");
  outrank();
  CUstream stream = make_stream();
  fake::pause();
  std::uint64_t most = 0;
  {
    Launcher first(200, stream);
    Launcher second(200, stream);
    while (first.done() + second.done() < 400) {
      std::this_thread::sleep_for(200us);
      most = std::max(most, fake::outstanding(stream));
      fake::finish(stream, 2);
    }
  }
  EXPECT_LE(most, 16U) << "two groups of two, and what the other thread slips in";
  EXPECT_EQ(fake::count(Id::cuEventRecord), 200U) << "one per group";
}

// A program may be waiting for its own later launch, so no wait of ours on the driver may be
// unbounded.
TEST_F(Pacing, AWaitOnTheDriverIsGivenUpAfterFiveSeconds) {
  attach("event:1");
  outrank();
  controller_->stop();
  catch_errors();
  fake::pause();
  {
    const FastClock clock;
    const auto begin = std::chrono::steady_clock::now();
    Launcher launcher(6, make_stream());
    EXPECT_TRUE(eventually([&] { return launcher.done() == 6; }, kProgramPatience))
        << "only a later launch ends it";
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 5s) << "gave up early";
  }
  EXPECT_EQ(slot().skipped_waits.load(), 1U);
  EXPECT_EQ(counted(Count::kGated), 7U) << "with the launch that attached";
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// Prevents: one long kernel ends the gating of a program for good, or a program whose streams all
// wait for one launch is stalled for 5 s by each of them.
TEST_F(Pacing, AfterASkippedWaitGatingGoesOn) {
  attach("event:1");
  Critical& critical = outrank();
  CUstream first = make_stream();
  CUstream second = make_stream();
  fake::pause();
  {
    Launcher launcher(6, first);
    {
      const FastClock clock;
      EXPECT_TRUE(eventually([&] { return launcher.done() == 6; }, kProgramPatience));
    }
    const auto begin = std::chrono::steady_clock::now();
    Launcher next(6, second);
    EXPECT_TRUE(eventually([&] { return next.done() == 6; }));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
  }
  EXPECT_EQ(slot().skipped_waits.load(), 2U);
  fake::resume();
  fake::finish_all();
  launch(first);
  launch(second);
  critical.begin();
  {
    Launcher held(1, first);
    EXPECT_TRUE(held.stops_after(0)) << "it obeys its gate";
    critical.end();
    EXPECT_TRUE(eventually([&] { return held.done() == 1; }));
  }
  fake::pause();
  {
    Launcher bounded(6, first);
    EXPECT_TRUE(bounded.stops_after(2)) << "its groups are bounded again";
    fake::resume();
  }
}

/// Events of a dead context are used in a stream that got a handle of the context's streams. Seen
/// to fail, for each way in which a context ends, when its records ended after the driver's call.
class Recycled : public Pacing {
 protected:
  void SetUp() override {
    Pacing::SetUp();
    attach("event:1");
    outrank();
    ::cuDevicePrimaryCtxRetain(&primary_, 0);
    ::cuCtxCreate_v2(&own_, 0, 0);
  }
  /// While `end` has ended `ending` and has not returned, another thread launches in `living`.
  template <class End>
  static void recycle(fake::Id stalled, CUcontext ending, CUcontext living, End end) {
    ::cuCtxSetCurrent(ending);
    CUstream stream = make_stream();
    for (int i = 0; i < 4; ++i) launch(stream);
    fake::stall_return(stalled);
    std::thread other([&] { EXPECT_EQ(end(), CUDA_SUCCESS); });
    EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
    ::cuCtxSetCurrent(living);
    std::set<CUstream> made;
    while (!made.contains(stream) && made.size() < 10) made.insert(make_stream());
    EXPECT_TRUE(made.contains(stream)) << "the driver gives the handle out again";
    for (int i = 0; i < 4; ++i) launch(stream);
    fake::unstall();
    other.join();
    for (int i = 0; i < 4; ++i) launch(stream);
    EXPECT_EQ(fake::uses_of_dead_events(), 0U);
  }
  CUcontext primary_ = nullptr;
  CUcontext own_ = nullptr;
};

TEST_F(Recycled, HandlesOfADestroyedContext) {
  recycle(Id::cuCtxDestroy_v2, own_, primary_, [this] { return ::cuCtxDestroy_v2(own_); });
}
TEST_F(Recycled, HandlesOfAResetContext) {
  recycle(Id::cuDevicePrimaryCtxReset_v2, primary_, own_,
          [] { return ::cuDevicePrimaryCtxReset_v2(0); });
}
TEST_F(Recycled, HandlesOfAReleasedContext) {
  recycle(Id::cuDevicePrimaryCtxRelease_v2, primary_, own_,
          [] { return ::cuDevicePrimaryCtxRelease_v2(0); });
}

// The driver reuses the handle of a destroyed stream: the new stream starts from nothing.
TEST_F(Pacing, AReusedStreamHandleIsANewStream) {
  attach("event:1");
  outrank();
  CUstream first = make_stream();
  fake::pause();
  launch(first);
  launch(first);
  ASSERT_EQ(::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  CUstream second = make_stream();
  ASSERT_EQ(second, first) << "the fake driver is to reuse handles";
  Launcher launcher(2, second);
  EXPECT_TRUE(eventually([&] { return launcher.done() == 2; }))
      << "held for events of a stream that is gone";
}

// Prevents: an event that went with its context is asked and recorded for as long as the program
// runs, each group without a bound.
TEST_F(Pacing, AGroupEndThatFailsIsMadeAnew) {
  attach("event:1");
  outrank();
  CUstream stream = make_stream();
  const auto recorded = [&] {
    fake::clear();
    launch(stream);
    launch(stream);
    std::set<std::uint64_t> events;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == Id::cuEventRecord) events.insert(call.arguments[0]);
    }
    return events;
  };
  const std::set<std::uint64_t> before = recorded();
  ASSERT_EQ(before.size(), 2U);
  fake::answer(Id::cuEventQuery, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  for (const std::uint64_t event : recorded()) EXPECT_FALSE(before.contains(event));
}

// Each call is counted exactly once, under its own entry.
TEST_F(Pacing, EachLaunchIsCountedOnceUnderItsEntry) {
  attach("gate");
  CUlaunchConfig config{};
  const auto exec = reinterpret_cast<CUgraphExec>(0x10);
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  ::cuLaunchKernelEx(&config, nullptr, nullptr, nullptr);
  ::cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr);
  ::cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  ::cuLaunchCooperativeKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  ::cuGraphLaunch(exec, nullptr);
  ::cuGraphLaunch_ptsz(exec, nullptr);
  for (std::size_t entry = 0; entry < 8; ++entry) {
    EXPECT_EQ(slot().entries[entry].launches(), 1U) << fake::kNames[entry];
  }
  EXPECT_EQ(launches(), 8U);
}

}  // namespace
}  // namespace sluice::intercept::test
