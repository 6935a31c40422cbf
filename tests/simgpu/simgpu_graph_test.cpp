#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/simgpu/gpu.hpp"
#include "tests/support/session.hpp"

namespace {

using sluice::simgpu::test::Gpu;

const sluice::test::Session kSession("simgpu");

class Graphs : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocHost(reinterpret_cast<void**>(&word), 64), CUDA_SUCCESS);
    *word = 0;
  }
  void TearDown() override {
    cuMemFreeHost(word);
    cuEventDestroy(event);
    cuStreamDestroy(stream);
    cuStreamDestroy(other);
  }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    ASSERT_EQ(cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
  }
  [[nodiscard]] CUresult end() {
    graph = nullptr;
    return cuStreamEndCapture(stream, &graph);
  }
  [[nodiscard]] CUstreamCaptureStatus status() const {
    CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuStreamIsCapturing(stream, &found), CUDA_SUCCESS);
    return found;
  }
  [[nodiscard]] CUresult wait_for_zero(CUstream on) const {
    return cuStreamWaitValue64(on, reinterpret_cast<CUdeviceptr>(word), 0, CU_STREAM_WAIT_VALUE_EQ);
  }
  [[nodiscard]] std::vector<CUgraphNodeType> types() const {
    std::size_t count = 0;
    EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> nodes(count);
    EXPECT_EQ(cuGraphGetNodes(graph, nodes.data(), &count), CUDA_SUCCESS);
    std::vector<CUgraphNodeType> found;
    for (CUgraphNode node : nodes) {
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      EXPECT_EQ(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
      found.push_back(type);
    }
    return found;
  }

  Gpu gpu;
  CUstream stream = nullptr;
  CUstream other = nullptr;
  CUevent event = nullptr;
  std::uint64_t* word = nullptr;
  CUgraph graph = nullptr;
};

// Device gating depends on this: it makes a captured graph preemptible at its kernels.
TEST_F(Graphs, AWaitCapturedBetweenKernelsHoldsTheRestOfTheGraph) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
  begin();
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8Async(memory, 1, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(wait_for_zero(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8Async(memory, 2, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(types(), (std::vector<CUgraphNodeType>{
                         CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMSET,
                         CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_MEMSET}));
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  *word = 1;
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(*reinterpret_cast<const char*>(memory), 1);  // NOLINT: device memory is shared memory
  __atomic_store_n(word, std::uint64_t{0}, __ATOMIC_RELEASE);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<const char*>(memory), 2);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);  // still queued, and runs to its end
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(Graphs, JoinedStreamsMakeAForkAndAJoin) {
  begin();
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(other, 1000), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, other), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  std::size_t edges = 0;
  ASSERT_EQ(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), CUDA_SUCCESS);
  EXPECT_EQ(types().size(), 4U);
  EXPECT_EQ(edges, 4U);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Graphs, AStreamThatIsNotJoinedBackIsAnError) {
  begin();
  ASSERT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(other, 1000), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_NONE);
}

// An interposer that queries an event during a capture breaks the application, and must see that
// here.
TEST_F(Graphs, AnUnsafeCallOfAnyThreadEndsAGlobalCapture) {
  begin();
  CUresult result = CUDA_SUCCESS;
  std::thread([&] { result = cuEventQuery(event); }).join();
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(gpu.launch(stream, 1000), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
}

TEST_F(Graphs, ARelaxedThreadMayQueryAndAllocateDuringACapture) {
  begin();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&memory, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

// A caller that adds waits must be able to fall back to the graph without them.
TEST_F(Graphs, DeviceLaunchRefusesMemoryOperationsAndACloneWithoutThemIsAccepted) {
  begin();
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(wait_for_zero(stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  EXPECT_NE(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
            CUDA_SUCCESS);

  CUgraphNode nodes[3] = {};
  std::size_t count = 3;
  ASSERT_EQ(cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
  CUgraph clone = nullptr;
  ASSERT_EQ(cuGraphClone(&clone, graph), CUDA_SUCCESS);
  CUgraphNode copies[3] = {};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cuGraphNodeFindInClone(&copies[i], nodes[i], clone), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuGraphAddDependencies(clone, &copies[0], &copies[2], nullptr, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroyNode(copies[1]), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, clone, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
            CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(clone), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Graphs, UpdateAcceptsOnlyAGraphOfTheSameShape) {
  const auto capture = [&](int kernels) {
    begin();
    for (int i = 0; i < kernels; ++i) EXPECT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
    EXPECT_EQ(end(), CUDA_SUCCESS);
    return graph;
  };
  CUgraph two = capture(2);
  CUgraph same = capture(2);
  CUgraph three = capture(3);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, two, 0), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(cuGraphExecUpdate(exec, same, &info), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecUpdate(exec, three, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  for (CUgraph made : {two, same, three}) EXPECT_EQ(cuGraphDestroy(made), CUDA_SUCCESS);
}

TEST_F(Graphs, HostFunctionsRunInStreamOrderAndFromGraphs) {
  static std::atomic<int> calls;
  calls = 0;
  const CUhostFn count = [](void* by) { calls += *static_cast<int*>(by); };
  int one = 1;
  int ten = 10;
  ASSERT_EQ(cuLaunchHostFunc(stream, count, &one), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
  begin();
  ASSERT_EQ(cuLaunchHostFunc(stream, count, &ten), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(calls, 11);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Graphs, CaptureInfoNamesTheLastNode) {
  begin();
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  CUstreamCaptureStatus active = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph under_construction = nullptr;
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(
      cuStreamGetCaptureInfo(stream, &active, &id, &under_construction, &last, nullptr, &count),
      CUDA_SUCCESS);
  EXPECT_EQ(active, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1U);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_EQ(cuGraphNodeGetType(last[0], &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(graph, under_construction);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
