// Conditional nodes. Their bodies may contain kernels, copies and fills, but no waits.
#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

struct Conditional {
  CUgraphConditionalHandle handle = 0;
  CUgraphNode node = nullptr;
  CUgraph body = nullptr;  ///< Belongs to the node.
};

CUcontext context() {
  CUcontext current = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&current));
  return current;
}

CUgraphConditionalHandle new_condition(CUgraph graph, unsigned value) {
  CUgraphConditionalHandle handle = 0;
  SLUICE_MUST(newer().cuGraphConditionalHandleCreate(&handle, graph, context(), value,
                                                     CU_GRAPH_COND_ASSIGN_DEFAULT));
  return handle;
}

Conditional add_conditional(CUgraph graph, const std::vector<CUgraphNode>& behind,
                            CUgraphConditionalHandle handle, CUgraphConditionalNodeType type) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = 1;
  params.conditional.ctx = context();
  Conditional made;
  made.handle = handle;

  SLUICE_MUST(
      newer().cuGraphAddNode(&made.node, graph, behind.data(), nullptr, behind.size(), &params));
  made.body = params.conditional.phGraph_out[0];
  return made;
}

CUgraphNode add_decide(CUgraph graph, const std::vector<CUgraphNode>& behind, Decide decide) {
  Call call(decide);
  const CUDA_KERNEL_NODE_PARAMS params = call.node_params();
  CUgraphNode node = nullptr;
  SLUICE_MUST(cuGraphAddKernelNode(&node, graph, behind.data(), behind.size(), &params));
  return node;
}

/// Captures the launches of `fill` as the body.
template <class Fill>
void capture_body(CUgraph body, Fill fill) {
  const Stream stream = new_stream();
  SLUICE_MUST(cuStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                          CU_STREAM_CAPTURE_MODE_RELAXED));
  fill(stream);
  CUgraph same = nullptr;
  SLUICE_MUST(cuStreamEndCapture(stream, &same));
}

void zero(CUdeviceptr word) { SLUICE_MUST(cuMemsetD32(word, 0, 1)); }

void if_by_default(Bench& bench) {
  const Stream stream = new_stream();
  for (const unsigned value : {1U, 0U}) {
    Graph graph;
    SLUICE_MUST(cuGraphCreate(graph.out(), 0));
    const CUgraphNode first = add(graph, {}, link(bench.x(), 1, 1));
    const Conditional branch =
        add_conditional(graph, {first}, new_condition(graph, value), CU_GRAPH_COND_TYPE_IF);
    capture_body(branch.body, [&](CUstream body) { chain(body, bench.x(), 2); });
    add(graph, {branch.node}, link(bench.x(), 3, 4));
    const Exec exec = instantiate(graph);
    bench.launch(exec, stream, 3);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.look();
}

// True for three launches, then false.
void if_by_kernel(Bench& bench) {
  const Stream stream = new_stream();
  zero(bench.y());
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphConditionalHandle handle = new_condition(graph, 0);
  const CUgraphNode first = add(graph, {}, link(bench.x(), 1, 1));
  const CUgraphNode decided = add_decide(graph, {first}, {handle, bench.y(), 4});
  const Conditional branch = add_conditional(graph, {decided}, handle, CU_GRAPH_COND_TYPE_IF);
  capture_body(branch.body, [&](CUstream body) { chain(body, bench.x(), 2); });
  add(graph, {branch.node}, link(bench.x(), 3, 6));
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 6);
  bench.look();
}

/// A graph that runs its body three times per launch.
Graph looping(Bench& bench, std::uint32_t seed) {
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = bench.y();
  fill.elementSize = 4;
  fill.width = fill.height = 1;
  CUgraphNode zeroed = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemsetNode(&zeroed, graph, nullptr, 0, &fill, context()));
  const Conditional loop =
      add_conditional(graph, {zeroed}, new_condition(graph, 1), CU_GRAPH_COND_TYPE_WHILE);
  capture_body(loop.body, [&](CUstream body) {
    chain(body, bench.x(), seed);
    SLUICE_MUST(Call(Decide{loop.handle, bench.y(), 3}).launch(body));
  });
  add(graph, {loop.node}, link(bench.x(), seed + 1, 4));
  return graph;
}

void while_by_kernel(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = looping(bench, 1);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 3);
  bench.look();
}

void while_on_several_streams(Bench& bench) {
  const Stream first = new_stream();
  const Stream second = new_stream();
  const Graph graph = looping(bench, 5);
  const Exec exec = instantiate(graph);
  for (int i = 0; i < 2; ++i) {
    bench.launch(exec, first);
    chain(first, bench.x(), 9, 3);
    join(second, first);
    bench.launch(exec, second);
    join(first, second);
  }
  bench.look();
}

void if_in_while(Bench& bench) {
  const Stream stream = new_stream();
  zero(bench.z());
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = bench.y();
  fill.elementSize = 4;
  fill.width = fill.height = 1;
  CUgraphNode zeroed = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemsetNode(&zeroed, graph, nullptr, 0, &fill, context()));
  const Conditional loop =
      add_conditional(graph, {zeroed}, new_condition(graph, 1), CU_GRAPH_COND_TYPE_WHILE);
  const CUgraphConditionalHandle inner = new_condition(loop.body, 0);
  const CUgraphNode first = add(loop.body, {}, link(bench.x(), 1, 1));
  const CUgraphNode decided = add_decide(loop.body, {first}, {inner, bench.z(), 3});
  const Conditional branch = add_conditional(loop.body, {decided}, inner, CU_GRAPH_COND_TYPE_IF);
  capture_body(branch.body, [&](CUstream body) { chain(body, bench.x(), 2, 7); });
  add_decide(loop.body, {branch.node}, {loop.handle, bench.y(), 3});
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 3);
  bench.look();
}

// As in PyTorch: the condition is added to the capture by a call, and the body is captured
// separately.
void inside_a_capture(Bench& bench) {
  const Stream stream = new_stream();
  zero(bench.y());
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  chain(stream, bench.x(), 1);
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  SLUICE_MUST(
      cuStreamGetCaptureInfo_v3(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  const CUgraphConditionalHandle handle = new_condition(graph, 0);
  SLUICE_MUST(Call(Decide{handle, bench.y(), 4}).launch(stream));
  const CUgraphNode* tails = nullptr;
  std::size_t count = 0;
  SLUICE_MUST(cuStreamGetCaptureInfo_v3(stream, &status, nullptr, &graph, &tails, nullptr, &count));
  Conditional branch =
      add_conditional(graph, {tails, tails + count}, handle, CU_GRAPH_COND_TYPE_IF);
  SLUICE_MUST(cuStreamUpdateCaptureDependencies_v2(stream, &branch.node, nullptr, 1,
                                                   CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  capture_body(branch.body, [&](CUstream body) { chain(body, bench.x(), 2); });
  chain(stream, bench.x(), 3);
  const Graph whole = end(stream);
  const Exec exec = instantiate(whole);
  bench.launch(exec, stream, 6);
  bench.look();
}

// A captured graph becomes part of a body, which must not contain waits.
void captured_child_in_body(Bench& bench) {
  const Stream stream = new_stream();
  zero(bench.y());
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphConditionalHandle handle = new_condition(graph, 0);
  const CUgraphNode decided = add_decide(graph, {}, {handle, bench.y(), 4});
  const Conditional branch = add_conditional(graph, {decided}, handle, CU_GRAPH_COND_TYPE_IF);
  const Graph child = captured(bench.x(), 1);
  CUgraphNode inside = nullptr;
  bench.note("child", cuGraphAddChildGraphNode(&inside, branch.body, nullptr, 0, child));
  add(graph, {branch.node}, link(bench.x(), 3, 4));
  Exec exec;
  const CUresult made = cuGraphInstantiate(exec.out(), graph, 0);
  bench.note("instantiate", made);
  if (made == CUDA_SUCCESS) bench.launch(exec, stream, 6);
  bench.look();
}

constexpr Case kCases[] = {
    {"conditional.if_by_default", if_by_default},
    {"conditional.if_by_kernel", if_by_kernel},
    {"conditional.while_by_kernel", while_by_kernel},
    {"conditional.while_on_several_streams", while_on_several_streams},
    {"conditional.if_in_while", if_in_while},
    {"conditional.inside_a_capture", inside_a_capture},
    {"conditional.captured_child_in_body", captured_child_in_body},
};

}  // namespace

std::span<const Case> conditional_cases() { return kCases; }

}  // namespace sluice::graphs
