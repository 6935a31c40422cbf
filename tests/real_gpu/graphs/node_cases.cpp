// Graphs built node by node, and graphs inside graphs.
#include <cstring>
#include <utility>

#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);

CUcontext context() {
  CUcontext current = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&current));
  return current;
}

CUgraphNode add_child(CUgraph graph, const std::vector<CUgraphNode>& behind, CUgraph child) {
  CUgraphNode node = nullptr;
  SLUICE_MUST(cuGraphAddChildGraphNode(&node, graph, behind.data(), behind.size(), child));
  return node;
}

/// A host function that adds one to each word.
void CUDA_CB add_one(void* words) {
  for (std::uint32_t i = 0; i < kWords; ++i) ++static_cast<std::uint32_t*>(words)[i];
}

class PinnedWords {
 public:
  PinnedWords() {
    SLUICE_MUST(cuMemAllocHost(&words_, kBytes));
    std::memset(words_, 3, kBytes);
  }
  PinnedWords(const PinnedWords&) = delete;
  PinnedWords& operator=(const PinnedWords&) = delete;
  ~PinnedWords() { cuMemFreeHost(words_); }
  [[nodiscard]] void* get() const { return words_; }

 private:
  void* words_ = nullptr;
};

void kernels_by_hand(Bench& bench) {
  const Stream stream = new_stream();
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphNode top = add(graph, {}, link(bench.x(), 1, 1));
  CUgraphNode left = add(graph, {top}, link(bench.x(), 2, 6));
  CUgraphNode right = add(graph, {top}, link(bench.y(), 3, 1));
  left = add(graph, {left}, link(bench.x(), 4, 2));
  right = add(graph, {right}, link(bench.y(), 5, 7));
  add(graph, {left, right}, Combine{bench.x(), bench.y()});
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 6);
  bench.look();
}

void fills_copies_and_host_calls(Bench& bench) {
  const Stream stream = new_stream();
  const PinnedWords pinned;
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = bench.y();
  fill.value = 77;
  fill.elementSize = 4;
  fill.width = kWords / 4;
  fill.height = 1;
  CUgraphNode filled = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill, context()));
  const CUgraphNode first = add(graph, {filled}, link(bench.y(), 1, 6));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = bench.y();
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = pinned.get();
  copy.WidthInBytes = kBytes;
  copy.Height = copy.Depth = 1;
  CUgraphNode down = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemcpyNode(&down, graph, &first, 1, &copy, context()));
  const CUDA_HOST_NODE_PARAMS host{add_one, pinned.get()};
  CUgraphNode called = nullptr;
  SLUICE_MUST(cuGraphAddHostNode(&called, graph, &down, 1, &host));
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.srcHost = pinned.get();
  copy.dstDevice = bench.z();
  CUgraphNode up = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemcpyNode(&up, graph, &called, 1, &copy, context()));
  const CUgraphNode second = add(graph, {up}, link(bench.z(), 2, 1));
  CUgraphNode empty = nullptr;
  SLUICE_MUST(cuGraphAddEmptyNode(&empty, graph, &second, 1));
  add(graph, {empty}, Combine{bench.x(), bench.z()});
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 5);
  bench.look();
}

// The same in a capture.
void captured_copies_and_host_calls(Bench& bench) {
  const Stream stream = new_stream();
  const PinnedWords pinned;
  begin(stream);
  chain(stream, bench.x(), 1, 5);
  SLUICE_MUST(cuMemsetD8Async(bench.y(), 9, kBytes / 3, stream));
  chain(stream, bench.y(), 2);
  SLUICE_MUST(cuMemcpyDtoHAsync(pinned.get(), bench.y(), kBytes, stream));
  SLUICE_MUST(cuLaunchHostFunc(stream, add_one, pinned.get()));
  SLUICE_MUST(cuMemcpyHtoDAsync(bench.z(), pinned.get(), kBytes, stream));
  chain(stream, bench.z(), 3, 7);
  SLUICE_MUST(cuMemcpyDtoDAsync(bench.y(), bench.x(), kBytes, stream));
  launch(stream, Combine{bench.x(), bench.z()});
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 4);
  bench.look();
}

// A captured graph twice inside another graph.
void captured_children(Bench& bench) {
  const Stream stream = new_stream();
  Graph child = captured(bench.x(), 1);
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphNode first = add(graph, {}, link(bench.x(), 2, 1));
  const CUgraphNode inside = add_child(graph, {first}, child);
  const CUgraphNode between = add(graph, {inside}, link(bench.x(), 3, 4));
  const CUgraphNode again = add_child(graph, {between}, child);
  child.reset();
  add(graph, {again}, link(bench.x(), 4, 6));
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 3);
  bench.look();
}

void child_changed(Bench& bench) {
  const Stream stream = new_stream();
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  CUgraphNode child = nullptr;
  {
    const Graph first = captured(bench.x(), 1);
    child = add_child(graph, {}, first);
  }
  add(graph, {child}, link(bench.x(), 2, 4));
  const Exec exec = instantiate(graph);
  for (std::uint32_t i = 0; i < 4; ++i) {
    bench.launch(exec, stream);
    const Graph next = captured(bench.x(), 10 + i);
    bench.note("set", newer().cuGraphExecChildGraphNodeSetParams(exec, child, next));
    bench.launch(exec, stream);
  }
  bench.look();
}

// The same by the call that takes nodes of every kind.
void child_changed_as_a_node(Bench& bench) {
  const Stream stream = new_stream();
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const Graph first = captured(bench.x(), 1);
  const CUgraphNode child = add_child(graph, {}, first);
  add(graph, {child}, link(bench.x(), 2, 4));
  const Exec exec = instantiate(graph);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Graph next = captured(bench.x(), 20 + i);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = next;
    const Content before = content_of(next);
    bench.note("set", newer().cuGraphExecNodeSetParams(exec, child, &params));
    must_be(next, before);
    bench.launch(exec, stream);
  }
  bench.look();
}

void clones(Bench& bench) {
  const Stream stream = new_stream();
  Graph graph = captured(bench.x(), 1);
  Graph clone;
  SLUICE_MUST(cuGraphClone(clone.out(), graph));
  graph.reset();
  const Exec exec = instantiate(clone);
  bench.launch(exec, stream, 3);
  Graph again;
  SLUICE_MUST(cuGraphClone(again.out(), clone));
  clone.reset();
  const Exec second = instantiate(again);
  bench.launch(second, stream, 3);
  bench.look();
}

constexpr Case kCases[] = {
    {"nodes.kernels", kernels_by_hand},
    {"nodes.fills_copies_and_host_calls", fills_copies_and_host_calls},
    {"nodes.captured_copies_and_host_calls", captured_copies_and_host_calls},
    {"nodes.captured_children", captured_children},
    {"nodes.child_changed", child_changed},
    {"nodes.child_changed_as_a_node", child_changed_as_a_node},
    {"nodes.clones", clones},
};

}  // namespace

std::span<const Case> node_cases() { return kCases; }

}  // namespace sluice::graphs
