// A capture ends with its stream, context or thread, and with nothing else.
#include <gtest/gtest.h>

#include <thread>

#include "tests/intercept/capturing.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;
using shm::Count;

// A stream that joined a capture may be destroyed inside the capture. A query of its id would break
// the capture.
TEST_F(Capturing, AStreamMayBeDestroyedInsideACapture) {
  attach("sync:1");
  outrank();
  CUstream stream = make_stream();
  CUstream joined = make_stream();
  launch(joined);
  CUevent event = nullptr;
  ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
  begin(stream);
  ASSERT_EQ(::cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamWaitEvent(joined, event, 0), CUDA_SUCCESS);
  launch(joined);
  ASSERT_EQ(::cuEventRecord(event, joined), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamDestroy_v2(joined), CUDA_SUCCESS);
  EXPECT_NE(end(stream), nullptr);
}

// Prevents: a capture that nobody can end any more disables the polling of jobs for good.
TEST_F(Capturing, ACaptureEndsWithItsStream) {
  attach("gate", 5);
  CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  launch(make_stream());
  EXPECT_TRUE(eventually([this] { return !shm::is_active(slot().job.load()); }));
}

// Prevents: launches that are held inside a capture, because its stream was all but destroyed.
TEST_F(Capturing, ACaptureOutlivesADestroyThatFails) {
  attach("gate");
  outrank();
  CUstream stream = make_stream();
  begin(stream);
  fake::answer(Id::cuStreamDestroy_v2, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_VALUE);
  fake::answer(Id::cuStreamDestroy_v2, CUDA_SUCCESS);
  const std::uint64_t captured = counted(Count::kCaptured);
  launch(stream);
  EXPECT_EQ(counted(Count::kCaptured), captured + 1);
  EXPECT_NE(end(stream), nullptr);
}

// Nobody else can end the capture, so the driver keeps it open. Seen to fail, with the job active
// until max_hold, when an open capture of any thread disabled the polling of jobs.
TEST_F(Capturing, ACaptureEndsWithItsThread) {
  attach("gate", 5);
  CUstream stream = make_stream();
  std::thread([stream] { begin(stream); }).join();
  launch(make_stream());
  EXPECT_TRUE(eventually([this] { return !shm::is_active(slot().job.load()); }));
}

// Another thread may end this one, but nobody has to. Prevents: no job ends by polling any more.
TEST_F(Capturing, ARelaxedCaptureThatNobodyEndsStopsNoPolling) {
  attach("gate", 5);
  begin(make_stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
  launch(make_stream());
  EXPECT_TRUE(eventually([this] { return !shm::is_active(slot().job.load()); }));
}

// Another thread may end a relaxed capture. Seen to fail when every capture ended with its thread.
TEST_F(Capturing, ARelaxedCaptureSurvivesItsThread) {
  attach("gate", 5);
  CUstream stream = make_stream();
  std::thread([stream] { begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED); }).join();
  launch(make_stream());  // lets it poll
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::uint64_t captured = counted(Count::kCaptured);
  launch(stream);
  EXPECT_EQ(counted(Count::kCaptured), captured + 1);
  EXPECT_NE(end(stream), nullptr);
}

// The driver may give the handle of a destroyed stream to another thread at once. Seen to fail, the
// capture in that stream broken by a query of its id, when the captures of a handle were given up
// after the call.
TEST_F(Capturing, ACaptureDoesNotEndWithTheStreamThatHadItsHandle) {
  attach("device:2");
  outrank();
  CUstream before = make_stream();
  fake::stall_return(Id::cuStreamDestroy_v2);
  std::thread destroying([before] { ::cuStreamDestroy_v2(before); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  CUstream stream = make_stream();
  EXPECT_EQ(stream, before);
  begin(stream);
  launch(stream);
  fake::unstall();
  destroying.join();
  launch(stream);
  const CUgraph graph = end(stream);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(fake::nodes(graph), "KK");
}

// Seen to fail, the capture broken by a query of its stream's id, when any green context ended all
// open captures.
TEST_F(Capturing, AGreenContextEndsNoOthersCapture) {
  attach("device:2");
  outrank();
  CUcontext primary = nullptr;
  CUgreenCtx green = nullptr;
  ::cuDevicePrimaryCtxRetain(&primary, 0);
  ASSERT_EQ(::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
  CUstream stream = make_stream();
  begin(stream);
  launch(stream);
  ASSERT_EQ(::cuGreenCtxDestroy(green), CUDA_SUCCESS);
  launch(stream);
  const CUgraph graph = end(stream);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(fake::nodes(graph), "KK");
}

// A library may reset the device on which the program has a context of its own. Seen to fail, the
// capture broken, when a primary context that nobody had retained matched any context.
TEST_F(Capturing, AResetOfAnUnusedPrimaryContextEndsNoCapture) {
  choose("device:2");
  CUcontext own = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  start_controller();
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  outrank();
  CUstream stream = make_stream();
  begin(stream);
  launch(stream);
  ASSERT_EQ(::cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  launch(stream);
  EXPECT_NE(end(stream), nullptr);
}

TEST_F(Capturing, ABrokenCaptureIsOverToo) {
  attach("gate");
  CUstream stream = make_stream();
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(::cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  fake::clear();
  launch(stream);
  EXPECT_EQ(fake::count(Id::cuStreamIsCapturing), 0U);
}

// A failed end on a stream that only joined leaves the capture open: launches are still no GPU
// work.
TEST_F(Capturing, AnEndOnTheWrongStreamEndsNothing) {
  attach("gate");
  CUstream first = make_stream();
  begin(first);
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(make_stream(), &graph), CUDA_ERROR_ILLEGAL_STATE);
  outrank().begin();
  launch(first);
  EXPECT_EQ(fake::nodes(end(first)), "K");
  EXPECT_EQ(counted(Count::kHeldNs), 0U) << "held until max_hold opened the gate";
}

}  // namespace
}  // namespace sluice::intercept::test
