// Inside a stream capture nothing may be held, added where it does not belong, or broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/intercept/capturing.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;
using shm::Count;

// Every entry that gives work, plain and per-thread, is recorded under its own name and once.
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
  attach("device:1");
  ASSERT_EQ(::cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  CUgraph graph = nullptr;
  ASSERT_EQ(::cuStreamEndCapture_ptsz(nullptr, &graph), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(graph), "WK");
}

// cuGraphExecUpdate of a second capture of the same code must find the same nodes.
TEST_F(Capturing, TwoCapturesOfTheSameCodeHaveTheSameNodes) {
  attach("device:2");
  outrank();
  CUgraph first = capture(make_stream(), 5);
  launch();  // shifts the spacing outside of captures
  CUstream other = make_stream();
  launch(other);
  CUgraph second = capture(other, 5);
  EXPECT_EQ(fake::nodes(first), "WKKWKKWK");
  EXPECT_EQ(fake::nodes(second), "WKKWKKWK");
  EXPECT_TRUE(fake::is_chain(first));
  EXPECT_EQ(counted(Count::kCaptured), 10U);
}

TEST_F(Capturing, EachStreamOfACaptureIsSpacedByItself) {
  attach("device:2");
  CUstream first = make_stream();
  CUstream second = make_stream();
  CUevent fork = nullptr;
  ::cuEventCreate(&fork, 0);
  begin(first);
  launch(first);
  ::cuEventRecord(fork, first);
  ::cuStreamWaitEvent(second, fork, 0);
  launch(second);
  launch(first);
  launch(first);
  EXPECT_EQ(fake::nodes(end(first)), "WKWKKWK");
}

// The body of a conditional node, for instance, may hold no wait.
TEST_F(Capturing, NothingIsAddedToAnExistingGraph) {
  attach("device:1");
  outrank();
  CUgraph graph = capture(make_stream(), 1);
  CUstream stream = make_stream();
  ASSERT_EQ(::cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  launch(stream);
  launch(stream);
  EXPECT_EQ(fake::nodes(end(stream)), "WKKK");
  EXPECT_EQ(counted(Count::kCaptured), 3U);  // with the one of the graph itself
}

// A wait between two kernels that overlap by a programmatic edge would cut the edge.
TEST_F(Capturing, NoWaitInFrontOfAProgrammaticLaunch) {
  attach("device:1");
  CUstream stream = make_stream();
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  begin(stream);
  launch(stream);
  ::cuLaunchKernelEx(&config, nullptr, nullptr, nullptr);
  launch(stream);
  EXPECT_EQ(fake::nodes(end(stream)), "WKKWK");
}

TEST_F(Capturing, AGraphThatMayNotHoldWaitsIsInstantiatedWithout) {
  catch_errors();
  attach("device:2");
  CUgraph graph = capture(make_stream(), 5);
  CUgraphExec plain = nullptr;
  CUgraphExec bare = nullptr;
  ASSERT_EQ(::cuGraphInstantiateWithFlags(&plain, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(plain), "WKKWKKWK");
  ASSERT_EQ(::cuGraphInstantiateWithFlags(&bare, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
            CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(bare), "KKKKK");
  EXPECT_TRUE(fake::is_chain(bare)) << "the order of the kernels was lost with the waits";
  EXPECT_EQ(fake::nodes(graph), "KKKKK") << "the graph is no longer that of its executable one";
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  graph = capture(make_stream(), 3);
  ASSERT_EQ(::cuGraphInstantiateWithParams(&bare, graph, &params), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(bare), "KKK");
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// The waits are then in copies of what was captured, which nobody has seen being captured.
TEST_F(Capturing, AChildAndACloneLoseTheirWaitsToo) {
  attach("device:2");
  CUgraph inner = capture(make_stream(), 3);
  CUgraph clone = nullptr;
  ASSERT_EQ(::cuGraphClone(&clone, inner), CUDA_SUCCESS);
  CUgraph outer = nullptr;
  ASSERT_EQ(::cuGraphClone(&outer, capture(make_stream(), 0)), CUDA_SUCCESS);
  CUgraphNode child = nullptr;
  ASSERT_EQ(::cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  for (CUgraph graph : {clone, outer}) {
    EXPECT_EQ(
        ::cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
        CUDA_SUCCESS);
  }
  EXPECT_EQ(fake::nodes(clone), "KKK");
  CUgraph inside = nullptr;
  ASSERT_EQ(::cuGraphChildGraphNodeGetGraph(child, &inside), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(inside), "KKK");
  EXPECT_TRUE(fake::is_chain(inside));
  EXPECT_EQ(fake::nodes(inner), "WKKWK") << "the graph that was copied is not concerned";
}

// A body may hold none at all, and is refused only when the whole is instantiated.
TEST_F(Capturing, AConditionalBodyLosesTheWaitsOfItsChild) {
  attach("device:2");
  CUgraph inner = capture(make_stream(), 3);
  CUgraph outer = capture(make_stream(), 1);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.size = 1;
  CUgraphNode branch = nullptr;
  ASSERT_EQ(::cuGraphAddNode_v2(&branch, outer, nullptr, nullptr, 0, &params), CUDA_SUCCESS);
  CUgraphNode child = nullptr;
  CUgraph body = params.conditional.phGraph_out[0];
  ASSERT_EQ(::cuGraphAddChildGraphNode(&child, body, nullptr, 0, inner), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(::cuGraphInstantiateWithFlags(&exec, outer, 0), CUDA_SUCCESS);
  CUgraph inside = nullptr;
  ASSERT_EQ(::cuGraphChildGraphNodeGetGraph(child, &inside), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(inside), "KKK");
}

// A program updates such an executable from a second capture of the same code.
TEST_F(Capturing, AnExecutableWithoutWaitsIsUpdatedFromAGraphWithThem) {
  attach("device:2");
  CUgraph graph = capture(make_stream(), 3);
  CUgraphExec plain = nullptr;
  CUgraphExec bare = nullptr;
  ASSERT_EQ(::cuGraphInstantiateWithFlags(&plain, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGraphInstantiateWithFlags(&bare, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
            CUDA_SUCCESS);
  CUgraph same = capture(make_stream(), 3);
  EXPECT_EQ(::cuGraphExecUpdate_v2(plain, same, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphExecUpdate_v2(bare, same, nullptr), CUDA_SUCCESS);
  CUgraph other = capture(make_stream(), 5);
  EXPECT_EQ(::cuGraphExecUpdate_v2(plain, other, nullptr), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(fake::nodes(other), "WKKWKKWK") << "the waits were not what was wrong with it";
}

// A failure that is not our nodes' fault is the program's, and costs it none of them.
TEST_F(Capturing, AGraphThatFailsAnywayFailsAsItself) {
  attach("device:2");
  CUgraph graph = capture(make_stream(), 3);
  fake::answer(Id::cuGraphInstantiateWithFlags, CUDA_ERROR_OUT_OF_MEMORY);
  CUgraphExec exec = nullptr;
  EXPECT_EQ(::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake::nodes(graph), "WKKWK");
  fake::answer(Id::cuGraphInstantiateWithFlags, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  fake::answer(Id::cuGraphInstantiateWithFlags, CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
}

// The driver refuses to launch a graph whose waits look at memory that is no longer registered.
TEST_F(Capturing, AGraphOfAnotherContextThanTheBoardsHoldsNoWaits) {
  catch_errors();
  attach("device:2");
  CUcontext primary = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  CUcontext other = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(capture(make_stream(), 3)), "KKK");
  ASSERT_EQ(::cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(capture(make_stream(), 3)), "WKKWK");
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  ASSERT_EQ(::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_TRUE(fake::registered()) << "the board went with a context of no importance";
}

// The poll of a job asks about its streams; a capture that begins in the middle would be broken.
TEST_F(Capturing, ACaptureWaitsForAQuestionAboutItsStream) {
  attach("gate", 5);
  CUstream stream = make_stream();
  CUstream other = make_stream();
  fake::pause();
  fake::stall(Id::cuStreamQuery);
  launch(stream);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  begin(other);
  EXPECT_NE(end(other), nullptr) << "a question about another stream is in nobody's way";
  fake::clear();
  std::thread capturing([stream] { begin(stream); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(fake::count(Id::cuStreamBeginCapture_v2), 0U);
  fake::unstall();
  capturing.join();
  EXPECT_NE(end(stream), nullptr);
}

// A capture gives the GPU no work: to hold it would hang the program for nothing.
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

/// Launches on a second thread while this one captures in the default mode, in which an unsafe
/// call of any thread breaks the capture.
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
  launch_beside_a_capture(make_stream(), make_stream());
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 1U);
}

TEST_F(Capturing, AGlobalCaptureSurvivesThePollingOfAJob) {
  attach("gate", 5);
  launch_beside_a_capture(make_stream(), make_stream());
}

// Half a nanosecond against a driver call: the query is made only while something is captured.
TEST_F(Capturing, TheDriverIsAskedOnlyWhileSomethingIsCaptured) {
  attach("gate");
  CUstream stream = make_stream();
  capture(stream, 2);
  fake::clear();
  launch(stream);
  EXPECT_EQ(fake::count(Id::cuStreamIsCapturing), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
