// The rules of each policy, by counts and order of driver calls on the recording driver.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "shm/policy.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/broker.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;

/// Long enough for an ungated launch to happen; waited for in full only when nothing must happen.
constexpr auto kInVain = 60ms;

class Pacing : public Session {};

/// Launches on a thread of its own, one after the other, as a program does.
class Launcher {
 public:
  Launcher(int launches, CUstream stream)
      : thread_([this, launches, stream] {
          for (int i = 0; i < launches; ++i) {
            ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
            ++done_;
          }
        }) {}
  ~Launcher() { thread_.join(); }
  [[nodiscard]] int done() const { return done_.load(); }
  /// Whether exactly `launches` launches get through.
  bool stops_after(int launches) const {
    if (!eventually([&] { return done() >= launches; })) return false;
    std::this_thread::sleep_for(kInVain);
    return done() == launches;
  }

 private:
  std::atomic<int> done_{0};
  std::thread thread_;
};

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
  EXPECT_EQ(fake::count(Id::cuEventCreate), 2U) << "events are pooled per stream";
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuEventRecord) {
      EXPECT_EQ(call.arguments[1], reinterpret_cast<std::uint64_t>(stream));
    }
  }
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
    Launcher launcher(6, make_stream());
    EXPECT_TRUE(eventually([&] { return launcher.done() == 6; })) << "only a later launch ends it";
  }
  EXPECT_EQ(slot().fail_reason.load(), static_cast<std::uint32_t>(shm::FailReason::kDriverWait));
  EXPECT_GE(counted(Count::kBypassFailedOpen), 3U);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// Prevents: the warning or the mark is lost because the client ran ungated for another reason at
// that moment, and the client waits again later.
TEST_F(Pacing, AWaitIsGivenUpForGoodAlsoWhileTheControllerIsSilent) {
  attach("event:1");
  outrank();
  controller_->stop();
  catch_errors();
  fake::pause();
  {
    Launcher launcher(6, make_stream());
    EXPECT_TRUE(launcher.stops_after(2));
    board().heartbeat_ns.store(1);
    EXPECT_TRUE(eventually([&] { return launcher.done() == 6; }));
  }
  const auto marked = static_cast<std::uint32_t>(shm::FailReason::kDriverWait);
  EXPECT_EQ(slot().fail_reason.load(), marked);
  const std::string said = errors();
  EXPECT_NE(said.find("took more than 5 s"), std::string::npos) << said;
  EXPECT_EQ(said.find("took more than 5 s"), said.rfind("took more than 5 s")) << said;
  controller_->signal(SIGCONT);
  std::this_thread::sleep_for(kInVain);
  EXPECT_EQ(slot().fail_reason.load(), marked);
}

std::string order_of_calls() {
  std::string order;
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuLaunchKernel) order += 'K';
    if (call.id == Id::cuGraphLaunch) order += 'G';
    if (call.id == Id::cuStreamWaitValue64_v2) order += 'W';
  }
  return order;
}

TEST_F(Pacing, DevicePutsAWaitInFrontOfEveryNthLaunchOfAStream) {
  attach("device:3");
  outrank();
  CUstream stream = make_stream();
  for (int i = 0; i < 7; ++i) launch(stream);
  EXPECT_EQ(order_of_calls(), "WKKKWKKKWK");
  fake::clear();
  launch(make_stream());
  launch(stream);
  EXPECT_EQ(order_of_calls(), "WKK") << "streams are spaced each by itself";
  fake::clear();
  for (int i = 0; i < 3; ++i) ::cuGraphLaunch(reinterpret_cast<CUgraphExec>(0x10), stream);
  EXPECT_EQ(order_of_calls(), "WGWGWG") << "a graph is many kernels";
  fake::clear();
  launch(stream);
  EXPECT_EQ(order_of_calls(), "WK") << "behind a graph a spacing begins";
}

TEST_F(Pacing, DeviceWaitsForTheClientsOwnGateAndNothingElse) {
  attach("device:1");
  outrank();
  // The interposer has a mapping of its own, so only the offset within the page is comparable.
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<const char*>(&slot().gate) -
                                                 reinterpret_cast<const char*>(&board()));
  CUstream stream = make_stream();
  launch(stream);
  bool found = false;
  for (const fake::Call& call : fake::calls()) {
    if (call.id != Id::cuStreamWaitValue64_v2) continue;
    found = true;
    EXPECT_EQ(call.arguments[0], reinterpret_cast<std::uint64_t>(stream));
    EXPECT_EQ((call.arguments[1] - offset) % 4096, 0U);
    EXPECT_EQ(call.arguments[2], 0U) << "open is 0";
    EXPECT_EQ(call.arguments[3], static_cast<std::uint64_t>(CU_STREAM_WAIT_VALUE_EQ));
  }
  EXPECT_TRUE(found);
}

TEST_F(Pacing, DeviceNeverHoldsOnTheHost) {
  attach("device:4");
  outrank().begin();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(order_of_calls(), "WKKKKWKKKK");
  EXPECT_EQ(counted(Count::kHeldNs), 0U) << "held until max_hold opened the gate";
}

TEST_F(Pacing, ADeviceWithoutStreamWaitsFallsBackToEvents) {
  fake::set_stream_waits(false);
  catch_errors();
  attach("device:4");
  outrank();
  launch();
  fake::pause();
  {
    Launcher launcher(6, make_stream());
    EXPECT_TRUE(launcher.stops_after(4)) << "event:2";
    fake::resume();
  }
  EXPECT_EQ(shm::Policy::unpack(slot().policy.load()),
            (shm::Policy{shm::PolicyKind::kEvent, shm::Spacing::launches(2)}));
  const std::string said = errors();
  EXPECT_NE(said.find("using event:2"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// An error of a call of ours must not reach the program.
TEST_F(Pacing, ErrorsOfOurOwnCallsStayOurs) {
  attach("device:1");
  outrank();
  fake::answer(Id::cuStreamWaitValue64_v2, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  fake::answer(Id::cuStreamGetId, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  fake::answer(Id::cuLaunchKernel, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

// Stream 0 of a per-thread entry is not the legacy stream: a wait there would bound the wrong one.
TEST_F(Pacing, PerThreadEntriesNameThePerThreadStream) {
  attach("device:1");
  outrank();
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  ::cuGraphLaunch_ptsz(reinterpret_cast<CUgraphExec>(0x10), nullptr);
  CUlaunchConfig config{};
  ::cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr);
  ::cuLaunchCooperativeKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  const auto per_thread = reinterpret_cast<std::uint64_t>(CU_STREAM_PER_THREAD);
  std::size_t waits = 0;
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuStreamWaitValue64_v2) {
      ++waits;
      EXPECT_EQ(call.arguments[0], per_thread);
    }
    if (call.id == Id::cuStreamGetId) {
      EXPECT_EQ(call.arguments[0], per_thread);
    }
    if (call.id == Id::cuLaunchKernel_ptsz) {
      EXPECT_EQ(call.arguments[8], 0U) << "the program's own argument";
    }
  }
  EXPECT_EQ(waits, 4U);
}

// The driver reuses the handle of a destroyed stream: the new stream starts from nothing.
TEST_F(Pacing, AReusedStreamHandleIsANewStream) {
  attach("event:1");
  outrank();
  CUstream first = make_stream();
  fake::pause();
  launch(first);
  launch(first);
  ASSERT_EQ(fake::living_events(), 2U);
  ASSERT_EQ(::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(fake::living_events(), 0U) << "events of a destroyed stream are left behind";
  CUstream second = make_stream();
  ASSERT_EQ(second, first) << "the fake driver is to reuse handles";
  Launcher launcher(2, second);
  EXPECT_TRUE(eventually([&] { return launcher.done() == 2; }))
      << "held for events of a stream that is gone";
}

TEST_F(Pacing, AReusedStreamHandleHasASpacingOfItsOwn) {
  attach("device:2");
  outrank();
  CUstream first = make_stream();
  launch(first);
  ASSERT_EQ(::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  CUstream second = make_stream();
  ASSERT_EQ(second, first) << "the fake driver is to reuse handles";
  launch(second);
  EXPECT_EQ(order_of_calls(), "WKWK");
}

// Prevents: an event that went with its context is asked and recorded for as long as the program
// runs, each group without a bound.
TEST_F(Pacing, AGroupEndThatFailsIsMadeAnew) {
  attach("event:1");
  outrank();
  CUstream stream = make_stream();
  launch(stream);
  launch(stream);
  ASSERT_EQ(fake::count(Id::cuEventCreate), 2U);
  fake::answer(Id::cuEventQuery, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  launch(stream);
  launch(stream);
  fake::answer(Id::cuEventQuery, CUDA_SUCCESS);
  launch(stream);
  EXPECT_EQ(fake::count(Id::cuEventCreate), 4U);
}

// A device reset ends registrations: waits on the old address would never be satisfied.
TEST_F(Pacing, ADeviceResetRegistersTheBoardAgain) {
  attach("device:1");
  outrank();
  launch();
  ASSERT_TRUE(fake::registered());
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  fake::clear();
  launch();
  EXPECT_TRUE(fake::registered());
  EXPECT_EQ(order_of_calls(), "WK");
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 1U);
}

// Seen to fail without the look at the primary context in cuGreenCtxDestroy.
TEST_F(Pacing, AGreenContextMayBeTheLastToHoldThePrimaryOne) {
  attach("device:1");
  outrank();
  CUcontext primary = nullptr;
  CUgreenCtx green = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
  launch();
  ASSERT_EQ(::cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ASSERT_TRUE(fake::registered());
  ASSERT_EQ(::cuGreenCtxDestroy(green), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  launch();
  EXPECT_TRUE(fake::registered());
}

// A context may end by a call that passes no hook: in a library that was loaded past the preload.
TEST_F(Pacing, AContextThatEndsUnseenCostsNoWait) {
  attach("device:1");
  outrank();
  launch();
  void* reset = nullptr;
  ASSERT_EQ(fake::find_entry("cuDevicePrimaryCtxReset", &reset, 12000, 0), CUDA_SUCCESS);
  ASSERT_EQ(reinterpret_cast<CUresult (*)(CUdevice)>(reset)(0), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  launch();
  EXPECT_TRUE(fake::registered());
  EXPECT_EQ(counted(Count::kBypassRefusedWait), 0U);
}

TEST_F(Pacing, TheProgramsContextStaysCurrent) {
  attach("device:1");
  outrank();
  CUcontext primary = nullptr;
  CUcontext own = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  launch(make_stream());  // the board is registered in the primary one
  EXPECT_TRUE(fake::registered());
  CUcontext now = nullptr;
  ASSERT_EQ(::cuCtxGetCurrent(&now), CUDA_SUCCESS);
  EXPECT_EQ(now, own);
}

TEST_F(Pacing, TheBoardIsRegisteredOnce) {
  attach("device:1");
  outrank();
  for (int i = 0; i < 5; ++i) launch(make_stream());
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 1U);
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

// Prevents: the queue of a program whose memory is wanted takes as long as the driver lets it.
TEST_F(Pacing, AheadBoundsTheQueueByTime) {
  attach("device:200us,ahead:2ms");
  outrank();
  CUstream stream = make_stream();
  learn(1, 0.4F);
  for (int i = 0; i < 50; ++i) kernel(1, stream);  // its marks are made
  fake::pause();
  std::atomic<int> done{0};
  std::atomic<bool> over{false};
  std::jthread program([&] {
    while (!over.load()) {
      kernel(1, stream);
      ++done;
    }
  });
  const auto stops = [&] {
    const int before = done.load();
    std::this_thread::sleep_for(kInVain);
    return done.load() == before;
  };
  EXPECT_TRUE(eventually(stops));
  const int queued = done.load();
  EXPECT_GE(queued, 3) << "the GPU runs dry";
  EXPECT_LE(queued, 6) << "5 launches of 0.4 ms, and one more";
  fake::finish_all();
  EXPECT_TRUE(eventually([&] { return done.load() > queued; }));
  EXPECT_TRUE(eventually(stops));
  EXPECT_LE(done.load() - queued, 6);
  over.store(true);
  fake::resume();
}

// Prevents: a program whose memory is wanted waits for its queue before it learns of that.
TEST_F(Pacing, AnOrderEndsTheWaitOfAProgramThatRanAhead) {
  attach("device:200us,ahead:1ms");
  const Broker broker(outrank(), slot());
  EXPECT_EQ(sluice_order(), 0U);
  CUstream stream = make_stream();
  learn(1, 0.6F);
  for (int i = 0; i < 50; ++i) kernel(1, stream);
  fake::pause();
  std::atomic<int> result{CUDA_SUCCESS};
  std::jthread program([&] {
    while (result.load() == CUDA_SUCCESS) result = kernel(1, stream);
  });
  std::this_thread::sleep_for(kInVain);
  EXPECT_EQ(result.load(), CUDA_SUCCESS);
  broker.give(shm::MemoryOrder::kDrop);
  EXPECT_TRUE(eventually([&] { return result.load() == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; }));
  fake::resume();
}

TEST_F(Pacing, WithoutAheadNothingBoundsTheQueue) {
  attach("device:200us");
  outrank();
  CUstream stream = make_stream();
  learn(1, 0.4F);
  fake::pause();
  Launcher launcher(200, stream);
  EXPECT_TRUE(eventually([&] { return launcher.done() == 200; }));
  fake::resume();
}

}  // namespace
}  // namespace sluice::intercept::test
