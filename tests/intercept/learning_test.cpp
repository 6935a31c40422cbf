// Policy device:Tus on the recording driver: what is learned, and where the waits go.
#include "tests/intercept/learning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;

TEST_F(Learning, UnknownLaunchesGetAWaitEach) {
  attach("device:200us");
  outrank();
  fake::pause();  // no sample comes to its end
  for (int i = 0; i < 5; ++i) kernel(3);
  EXPECT_EQ(order_of_calls(), "W3W3W3W3W3");
  EXPECT_EQ(slot().unknown_launches.load(), 5U);
}

TEST_F(Learning, WaitsAreSpacedByLearnedTime) {
  attach("device:200us");
  outrank();
  learn_both();
  begin_anew();
  for (int i = 0; i < 9; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1111W1111W1");
  EXPECT_EQ(slot().longest_launch_ns.load(), 500'000U);
}

TEST_F(Learning, ALongLaunchHasAWaitInFrontAndBehind) {
  attach("device:200us");
  outrank();
  learn_both();
  begin_anew();
  kernel(kShort);
  kernel(kLong);
  kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1W2W1");
}

// Records of streams are used again.
TEST_F(Learning, AStreamInThePlaceOfAnotherIsMeasured) {
  attach("device:200us");
  outrank();
  CUstream first = make_stream();
  kernel(kLong, first);
  ASSERT_EQ(::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  CUstream second = make_stream();
  EXPECT_TRUE(eventually([&] {
    const std::uint64_t unknown = slot().unknown_launches.load();
    kernel(kShort, second);
    std::this_thread::sleep_for(1ms);
    return slot().unknown_launches.load() == unknown;
  }));
}

// Prevents: next to a program that is always in a job, because it never synchronises, every launch
// stays unknown and gets a wait. Seen to fail when such samples were dropped.
TEST_F(Learning, ASampleNextToAnotherJobIsABound) {
  attach("device:200us");
  fake::set_elapsed(0.05F);
  outrank().begin();
  ASSERT_TRUE(eventually([&] {
    kernel(kShort);
    std::this_thread::sleep_for(3ms);
    return slot().unknown_launches.load() >= 1 && fake::count(Id::cuEventElapsedTime) >= 2;
  })) << "so that the first sample is known";
  const std::uint64_t unknown = slot().unknown_launches.load();
  begin_anew();
  for (int i = 0; i < 9; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1111W1111W1");
  EXPECT_EQ(slot().unknown_launches.load(), unknown + 1) << "the launch that begins anew";
}

// Seen to fail when all samples counted alike.
TEST_F(Learning, ASampleOfAnIdleGpuDoesNotCountBesideOneBehindWork) {
  attach("device:200us");
  outrank();
  learn(kLong, 0.5F);
  fake::set_elapsed(0.09F);
  fake::pause();
  kernel(kShort);  // the GPU has not come to it when its second event is recorded
  fake::resume();
  ASSERT_TRUE(eventually(settled));
  fake::set_elapsed(0.11F);  // no longer than the host may have taken
  fake::clear();
  ASSERT_TRUE(eventually([] {
    for (int i = 0; i < 16; ++i) kernel(kShort);
    std::this_thread::sleep_for(5ms);
    return fake::count(Id::cuEventElapsedTime) >= 3;
  }));
  begin_anew();
  for (int i = 0; i < 4; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W11W11");
}

// Prevents: a kernel is spaced by the duration of one that lay at its address.
TEST_F(Learning, AfterCodeWasUnloadedALaunchIsUnknown) {
  attach("device:200us");
  outrank();
  learn_both();
  begin_anew();
  kernel(kShort);
  kernel(kShort);
  fake::pause();  // no sample comes to its end
  ::cuModuleUnload(nullptr);
  kernel(kShort);
  kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W11W1W1");
  fake::resume();
  learn(kShort, 0.05F);
}

// Prevents: what a refused call has left loaded is unknown.
TEST_F(Learning, ARefusedUnloadForgetsNothing) {
  attach("device:200us");
  outrank();
  learn_both();
  fake::pause();  // no sample comes to its end
  fake::answer(Id::cuModuleUnload, CUDA_ERROR_UNKNOWN);
  fake::answer(Id::cuLibraryUnload, CUDA_ERROR_UNKNOWN);
  begin_anew();
  EXPECT_EQ(::cuModuleUnload(nullptr), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(::cuLibraryUnload(nullptr), CUDA_ERROR_UNKNOWN);
  for (int i = 0; i < 5; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1111W1");
}

// Prevents: the owner of a turn does not know when a kernel of unknown length is done.
TEST_F(Learning, InTurnsTheEndOfALongKernelIsMarked) {
  attach("device:200us");
  outrank();
  learn_both();
  const auto marks = [&](std::uintptr_t function) {
    slot().outranked.fetch_or(shm::kTakesTurns);
    fake::clear();
    kernel(function);
    std::string order;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == Id::cuLaunchKernel) order += 'K';
      if (call.id == Id::cuStreamWriteValue64_v2) order += 'w';
      if (call.id == Id::cuStreamWaitValue64_v2) order += 'W';
    }
    return order;
  };
  EXPECT_EQ(marks(7), "wWKw") << "of unknown length";
  EXPECT_EQ(marks(kShort), "wWK") << "behind it";
  EXPECT_EQ(marks(kShort), "K");
  EXPECT_EQ(marks(kLong), "wWK") << "0.5 ms, as was learned";
}

// A failed launch would be known as very short. Seen to fail when the result of the call was
// ignored.
TEST_F(Learning, ALaunchThatFailsIsNoSample) {
  attach("device:200us");
  outrank();
  fake::set_elapsed(0.001F);
  fake::answer(Id::cuLaunchKernel, CUDA_ERROR_INVALID_VALUE);
  for (int i = 0; i < 20; ++i) {
    kernel(kLong);
    std::this_thread::sleep_for(2ms);
  }
  fake::answer(Id::cuLaunchKernel, CUDA_SUCCESS);
  EXPECT_EQ(slot().unknown_launches.load(), 20U);
  learn(kLong, 0.5F);
}

// A context that the driver cannot name ends, and with it the records of all streams, while a
// measured launch is under way. Seen to fail, its kind unknown from then on, without the look at
// ended_ in Sampler::end().
TEST_F(Learning, AContextMayEndBesideAMeasuredLaunch) {
  attach("device:200us");
  outrank();
  fake::stall(Id::cuLaunchKernel);
  std::thread other([] { kernel(kShort); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  ::cuGreenCtxDestroy(nullptr);
  fake::unstall();
  other.join();
  learn(kShort, 0.05F);
}

// The record of its stream belongs to another stream by then. Seen to crash.
TEST_F(Learning, AStreamMayBeginInTheRecordOfAMeasuredLaunch) {
  attach("device:200us");
  outrank();
  fake::stall(Id::cuLaunchKernel);
  std::thread other([] { kernel(kShort); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  ::cuGreenCtxDestroy(nullptr);
  for (int i = 0; i < 3; ++i) ::cuMemcpyHtoDAsync_v2(0x1000, nullptr, 1, make_stream());
  fake::unstall();
  other.join();
  learn(kShort, 0.05F);
}

// What such a launch spends after that belongs to no account. Seen to fail, with a wait in front of
// each later launch.
TEST_F(Learning, ALaunchThatOutlastsItsContextSpendsNothing) {
  attach("device:200us");
  outrank();
  learn_both();
  CUstream capturing = make_stream();
  CUstream stream = make_stream();
  kernel(kShort, stream);
  ASSERT_EQ(::cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  kernel(kShort, stream);
  fake::stall(Id::cuStreamIsCapturing);
  std::thread other([stream] { kernel(kLong, stream); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  ::cuGreenCtxDestroy(nullptr);
  fake::unstall();
  other.join();
  for (int i = 0; i < 4; ++i) ::cuMemcpyHtoDAsync_v2(0x1000, nullptr, 1, make_stream());
  begin_anew();
  for (int i = 0; i < 9; ++i) kernel(kShort);
  EXPECT_EQ(order_of_calls(), "W1111W1111W1");
}

// A server that has a thread for each request. Seen to fail, with two events for each of the
// threads since the last look at them, when records were kept until their number had doubled.
TEST_F(Learning, WhatIsKeptOfThreadsEndsWithThem) {
  attach("event:1");
  outrank();
  for (int i = 0; i < 900; ++i) {
    std::thread([] { kernel(kShort, CU_STREAM_PER_THREAD); }).join();
  }
  EXPECT_LT(fake::living_events(), 500U);
}

// The driver refuses to destroy a default stream, but programs try. Seen to fail, with an event of
// a launch destroyed before it was recorded.
TEST_F(Learning, ADefaultStreamThatIsNotDestroyedKeepsItsEvents) {
  attach("device:200us");
  outrank();
  fake::stall(Id::cuLaunchKernel);
  std::thread other([] { kernel(kShort); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  EXPECT_NE(::cuStreamDestroy_v2(nullptr), CUDA_SUCCESS);
  fake::unstall();
  other.join();
  EXPECT_EQ(fake::uses_of_dead_events(), 0U);
}

// Next to a critical program, there is a job between any two launches of a program that waits for
// its results. Seen to fail, its kind unknown indefinitely, without begun_while().
TEST_F(Learning, AJobThatWasOverBeforeTheLaunchSpoilsNoSample) {
  attach("device:200us");
  fake::set_elapsed(0.05F);
  Critical& critical = outrank();
  for (int i = 0; i < 20; ++i) {
    critical.begin();
    critical.end();
    kernel(kShort);
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_LT(slot().unknown_launches.load(), 10U);
}

// Seen to fail, with the events leaked, when any green context ended all records.
TEST_F(Learning, AGreenContextTakesNoOthersEventsAlong) {
  attach("device:200us");
  outrank();
  CUcontext primary = nullptr;
  ::cuDevicePrimaryCtxRetain(&primary, 0);
  CUgreenCtx green = nullptr;
  ASSERT_EQ(::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
  CUstream stream = make_stream();
  kernel(kShort, stream);
  const std::size_t before = fake::living_events();
  ASSERT_EQ(::cuGreenCtxDestroy(green), CUDA_SUCCESS);
  ::cuStreamDestroy_v2(stream);
  for (int i = 0; i < 100; ++i) kernel(kShort, make_stream());
  EXPECT_EQ(fake::living_events(), before);
}

TEST_F(Learning, AloneItLearnsAndNeverWaits) {
  attach("device:200us");
  fake::set_elapsed(0.05F);
  EXPECT_TRUE(eventually([&] {
    kernel(kShort);
    return fake::count(Id::cuEventElapsedTime) >= 8;
  }));
  EXPECT_EQ(fake::count(Id::cuStreamWaitValue64_v2), 0U);
  // When no new kind comes, learning ends and costs nothing.
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 5000; ++i) kernel(kShort);
    fake::clear();
    for (int i = 0; i < 600; ++i) kernel(kShort);
    return fake::count(Id::cuEventRecord) == 0 && fake::count(Id::cuStreamGetId) == 0;
  }));
}

TEST_F(Learning, AGraphWithoutWaitsIsTold) {
  attach("device:200us");
  outrank();
  const auto graph = reinterpret_cast<CUgraphExec>(0x10);
  fake::set_elapsed(3.0F);
  EXPECT_TRUE(eventually([&] {
    ::cuGraphLaunch(graph, nullptr);
    std::this_thread::sleep_for(1ms);
    return slot().ungated_graph_ns.load() == 3'000'000;
  }));
  fake::clear();
  ::cuGraphLaunch(graph, nullptr);
  EXPECT_EQ(fake::count(Id::cuStreamWaitValue64_v2), 1U);
}

// Samples of other threads must not break a capture in the default mode.
TEST_F(Learning, SamplesBreakNoCapture) {
  attach("device:200us");
  outrank();
  CUstream captured = make_stream();
  fake::set_elapsed(0.05F);
  ASSERT_EQ(::cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  std::thread other([&] {
    CUcontext context = nullptr;
    ::cuDevicePrimaryCtxRetain(&context, 0);
    ::cuCtxSetCurrent(context);
    CUstream stream = make_stream();
    for (int i = 0; i < 30; ++i) {
      kernel(kShort, stream);
      std::this_thread::sleep_for(1ms);
    }
  });
  other.join();
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
}

// Prevents: the poller blocked until the gate opens. The driver blocks whoever makes an event while
// a queue of the context is full, and behind a closed gate it may be.
TEST_F(Learning, NoEventIsMadeBehindAClosedGate) {
  attach("device:200us");
  Critical& critical = outrank();
  std::vector<CUstream> streams;
  for (int i = 0; i < 20; ++i) kernel(kShort, streams.emplace_back(make_stream()));
  std::this_thread::sleep_for(40ms);  // until launches are measured, in so many streams
  fake::clear();
  fake::pause();  // no sample gives its events back
  critical.begin();
  for (std::uintptr_t i = 0; i < 20; ++i) kernel(10 + i, streams[i]);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(fake::count(Id::cuEventCreate), 0U);
  critical.end();
  EXPECT_TRUE(eventually([] { return fake::count(Id::cuEventCreate) != 0; }));
}

// Prevents: events that pile up, or end, with each stream.
TEST_F(Learning, TheNextStreamHasTheEventsOfOneThatHasEnded) {
  attach("device:200us");
  outrank();
  kernel(kShort);
  const std::size_t before = fake::living_events();
  fake::pause();  // the samples are under way when their streams end
  for (int i = 0; i < 100; ++i) {
    CUstream stream = make_stream();
    kernel(7 + static_cast<std::uintptr_t>(i), stream);
    ::cuStreamDestroy_v2(stream);
  }
  EXPECT_EQ(fake::living_events(), before);
  EXPECT_EQ(fake::count(Id::cuEventDestroy_v2), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
