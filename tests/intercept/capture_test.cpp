// Inside a stream capture, nothing may be held, added or broken.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/intercept/capturing.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;
using shm::Count;

// Every launch entry, plain and per-thread, is recorded once and under its own name.
TEST_F(Capturing, EveryLaunchEntryIsRecordedOnce) {
  attach("gate");
  outrank().begin();
  CUstream stream = make_stream();
  const auto exec = reinterpret_cast<CUgraphExec>(0x10);
  CUlaunchConfig config{};
  config.hStream = stream;
  begin(stream);
  launch(stream);
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  ::cuLaunchKernelEx(&config, nullptr, nullptr, nullptr);
  ::cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr);
  ::cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr);
  ::cuLaunchCooperativeKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr);
  ::cuGraphLaunch(exec, stream);
  ::cuGraphLaunch_ptsz(exec, stream);
  EXPECT_EQ(fake::nodes(end(stream)), "KKKKKKGG");
  for (std::size_t entry = 0; entry < 8; ++entry) {
    EXPECT_EQ(slot().entries[entry][Count::kCaptured].load(), 1U) << fake::kNames[entry];
  }
  EXPECT_EQ(counted(Count::kHeldNs), 0U);
}

TEST_F(Capturing, ACaptureOfThePerThreadStreamIsNotHeld) {
  attach("gate");
  outrank().begin();
  ASSERT_EQ(::cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  CUgraph graph = nullptr;
  ASSERT_EQ(::cuStreamEndCapture_ptsz(nullptr, &graph), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(graph), "K");
  EXPECT_EQ(counted(Count::kHeldNs), 0U);
}

// Waits come into a graph when it is instantiated, and go again.
// What the thread remembers of it does not hold any more.
TEST_F(Capturing, AStreamThatWasLaunchedIntoBeforeIsCaptured) {
  attach("gate");
  CUstream stream = make_stream();
  launch(stream);
  const std::uint64_t gated = counted(Count::kGated);
  capture(stream, 3);
  EXPECT_EQ(counted(Count::kCaptured), 3U);
  EXPECT_EQ(counted(Count::kGated), gated);
}

// Such launches are not remembered, because each has to ask whether its own stream is captured.
TEST_F(Capturing, EachLaunchBesideACaptureIsCounted) {
  attach("gate");
  CUstream other = make_stream();
  CUstream stream = make_stream();
  begin(stream);
  const std::uint64_t gated = counted(Count::kGated);
  for (int i = 0; i < 3; ++i) launch(other);
  EXPECT_EQ(counted(Count::kGated), gated + 3);
  end(stream);
}

// Waits are put into a graph when it is instantiated, and taken out again.
TEST_F(Capturing, NothingIsAddedToACapture) {
  attach("device:1");
  outrank();
  EXPECT_EQ(fake::nodes(capture(make_stream(), 3)), "KKK");
  EXPECT_EQ(counted(Count::kCaptured), 3U);
}

// A poll queries the streams of a job. A capture that begins in the middle would be broken.
TEST_F(Capturing, ACaptureWaitsForAQueryOfItsStream) {
  attach("gate", 5);
  CUstream stream = make_stream();
  CUstream other = make_stream();
  fake::pause();
  fake::stall(Id::cuStreamQuery);
  launch(stream);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  begin(other);
  EXPECT_NE(end(other), nullptr) << "a query of another stream does not matter";
  fake::clear();
  std::thread capturing([stream] { begin(stream); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(fake::count(Id::cuStreamBeginCapture_v2), 0U);
  fake::unstall();
  capturing.join();
  EXPECT_NE(end(stream), nullptr);
}

// A second stream joins a capture when it waits for an event of it. Prevents: a poll has found that
// the stream does not capture, and breaks the capture by the query that follows.
TEST_F(Capturing, AStreamThatJoinsACaptureWaitsForAQueryOfIt) {
  attach("gate", 5);
  CUstream stream = make_stream();
  CUstream joins = make_stream();
  CUevent event = nullptr;
  ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
  begin(stream);
  ASSERT_EQ(::cuEventRecord(event, stream), CUDA_SUCCESS);
  fake::pause();
  launch(joins);
  fake::stall_return(Id::cuStreamIsCapturing);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  std::thread joining([=] { ::cuStreamWaitEvent(joins, event, 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake::unstall();
  joining.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_NE(end(stream), nullptr);
}

// A capture gives the GPU no work, so a hold would stop the program for nothing.
TEST_F(Capturing, NothingIsHeldInACapture) {
  attach("gate");
  outrank().begin();
  EXPECT_EQ(fake::nodes(capture(make_stream(), 3)), "KKK");
  EXPECT_EQ(counted(Count::kWaited), 0U);
}

TEST_F(Capturing, EventAndSyncLeaveCapturesAlone) {
  attach("event:1");
  outrank().begin();
  fake::clear();
  EXPECT_EQ(fake::nodes(capture(make_stream(), 3)), "KKK");
  EXPECT_EQ(fake::count(Id::cuEventRecord) + fake::count(Id::cuEventQuery), 0U);
}

/// Launches on a second thread while this one captures in the default mode, in which an unsafe call
/// by any thread breaks the capture.
void launch_beside_a_capture(CUstream captured, CUstream used) {
  ASSERT_EQ(::cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  std::thread other([used] {
    for (int i = 0; i < 40; ++i) {
      ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, used, nullptr, nullptr);
      if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // lets it poll
    }
  });
  other.join();
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
}

TEST_F(Capturing, AGlobalCaptureSurvivesEventsOfAnotherThread) {
  attach("event:1");
  outrank();
  launch_beside_a_capture(make_stream(), make_stream());
  EXPECT_GE(fake::count(Id::cuEventQuery), 38U) << "the other thread was to pace";
}

TEST_F(Capturing, AGlobalCaptureSurvivesSynchronisingOfAnotherThread) {
  attach("sync:1");
  outrank();
  launch_beside_a_capture(make_stream(), make_stream());
  EXPECT_GE(fake::count(Id::cuStreamQuery), 40U);
}

TEST_F(Capturing, AGlobalCaptureSurvivesTheRegistrationOfTheBoard) {
  attach("device:1");
  outrank();
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);  // with the registration
  ASSERT_FALSE(fake::registered());
  fake::clear();
  launch_beside_a_capture(make_stream(), make_stream());
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 1U);
}

TEST_F(Capturing, AGlobalCaptureSurvivesThePollingOfAJob) {
  attach("gate", 5);
  launch_beside_a_capture(make_stream(), make_stream());
}

// The driver is queried only while a capture is open: otherwise each launch would cost a driver
// call.
TEST_F(Capturing, TheDriverIsAskedOnlyWhileSomethingIsCaptured) {
  attach("gate");
  CUstream stream = make_stream();
  capture(stream, 2);
  fake::clear();
  launch(stream);
  EXPECT_EQ(fake::count(Id::cuStreamIsCapturing), 0U);
}

/// How a program comes to an entry that the interposer does not know.
fake::FutureBegin future_begin(bool by_dlsym) {
  void* found = nullptr;
  if (by_dlsym) {
    found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), fake::kFutureBegin);
  } else {
    EXPECT_EQ(::cuGetProcAddress_v2(fake::kFutureBegin, &found, 13000, 0, nullptr), CUDA_SUCCESS);
  }
  EXPECT_NE(found, nullptr);
  return reinterpret_cast<fake::FutureBegin>(found);
}

/// The nodes that three launches make in a capture that begins unseen, in a stream that the thread
/// knows.
std::string nodes_of_unseen_capture(CUstream stream, bool by_dlsym) {
  const fake::FutureBegin begin_unseen = future_begin(by_dlsym);
  EXPECT_EQ(begin_unseen(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i)
    ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  return graph == nullptr ? "" : fake::nodes(graph);
}

// Prevents: waits in the program's own graph, because an entry of a newer CUDA began the capture.
TEST_F(Capturing, NothingIsAddedToACaptureThatBeginsUnseen) {
  attach("device:1");
  outrank();
  CUstream stream = make_stream();
  launch(stream);
  EXPECT_EQ(nodes_of_unseen_capture(stream, false), "KKK");
  EXPECT_EQ(counted(Count::kCaptured), 3U);
}

// Prevents: the same for a program that finds the entry in the library itself, and a hold in it.
TEST_F(Capturing, NothingIsHeldInACaptureThatBeginsUnseen) {
  attach("gate");
  CUstream stream = make_stream();
  launch(stream);
  outrank().begin();
  EXPECT_EQ(nodes_of_unseen_capture(stream, true), "KKK");
  EXPECT_EQ(counted(Count::kCaptured), 3U);
  EXPECT_EQ(counted(Count::kHeldNs), 0U);
}

// Prevents: a poll asks for the work that the stream was given before, and breaks the capture.
TEST_F(Capturing, NoPollBreaksACaptureThatBeginsUnseen) {
  attach("gate", 5);
  CUstream stream = make_stream();
  const fake::FutureBegin begin_unseen = future_begin(false);
  fake::pause();
  launch(stream);
  ASSERT_EQ(begin_unseen(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  fake::clear();
  EXPECT_TRUE(eventually([] { return fake::count(Id::cuStreamIsCapturing) >= 2; }));
  fake::resume();
  EXPECT_NE(end(stream), nullptr);
  EXPECT_TRUE(eventually([this] { return !shm::is_active(slot().job.load()); }));
}

// A query of the legacy stream would break the capture of a blocking stream.
TEST_F(Capturing, TheLegacyStreamIsNotQueriedBesideACaptureItWaitsFor) {
  attach("gate", 5);
  begin(make_stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
  launch();
  fake::answer(Id::cuStreamIsCapturing, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  fake::clear();
  ASSERT_TRUE(eventually([] { return fake::count(Id::cuStreamIsCapturing) >= 2; }));
  EXPECT_EQ(fake::count(Id::cuStreamQuery), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
