// Captures of streams that cuStreamCreate did not create, and captures into existing graphs.
#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

// Every thread's own default stream, captured and launched on.
void per_thread_stream(Bench& bench) {
  CUstream stream = CU_STREAM_PER_THREAD;
  begin(stream);
  chain(stream, bench.x(), 1);
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 3);
  SLUICE_MUST(cuStreamSynchronize(stream));
  bench.look();
}

// A stream that takes turns with the legacy stream: a call of ours on the legacy stream would end
// the capture.
void blocking_stream(Bench& bench) {
  const Stream stream = new_stream(CU_STREAM_DEFAULT);
  chain(nullptr, bench.x(), 1, 3);
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  chain(stream, bench.x(), 2);
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  for (std::uint32_t i = 0; i < 3; ++i) {
    bench.launch(exec, stream);
    chain(nullptr, bench.x(), 3 + i, 2);
  }
  bench.look();
}

// The nodes before and after a capture into a graph belong to the program.
void into_a_graph(Bench& bench) {
  const Stream stream = new_stream();
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  CUgraphNode last = add(graph, {}, link(bench.x(), 1, 0));
  for (std::uint32_t i = 0; i < 2; ++i) {
    SLUICE_MUST(cuStreamBeginCaptureToGraph(stream, graph, &last, nullptr, 1,
                                            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    chain(stream, bench.x(), 2 + i);
    const CUgraphNode* tails = nullptr;
    std::size_t count = 0;
    CUstreamCaptureStatus status{};
    SLUICE_MUST(
        cuStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, &tails, nullptr, &count));
    const std::vector<CUgraphNode> behind(tails, tails + count);
    CUgraph same = nullptr;
    SLUICE_MUST(cuStreamEndCapture(stream, &same));
    bench.note("same", same == graph ? 1 : 0);
    last = add(graph, behind, link(bench.x(), 4, i));
  }
  bench.note("nodes", nodes_of(graph, CU_GRAPH_NODE_TYPE_KERNEL).size());
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 4);
  bench.look();
}

// A node that the program adds in the middle of its capture.
void node_by_hand(Bench& bench) {
  const Stream stream = new_stream();
  begin(stream);
  chain(stream, bench.x(), 1, 5);
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUgraphNode* tails = nullptr;
  std::size_t count = 0;
  SLUICE_MUST(cuStreamGetCaptureInfo_v3(stream, &status, nullptr, &graph, &tails, nullptr, &count));
  bench.note("tails", count);
  CUgraphNode node = add(graph, {tails, tails + count}, link(bench.x(), 2, 0));
  SLUICE_MUST(cuStreamUpdateCaptureDependencies_v2(stream, &node, nullptr, 1,
                                                   CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  chain(stream, bench.x(), 3, 5);
  const Graph whole = end(stream);
  const Exec exec = instantiate(whole);
  bench.launch(exec, stream, 4);
  bench.look();
}

// Events that are recorded and waited for on every run of the graph.
void external_events(Bench& bench) {
  const Stream stream = new_stream();
  const Stream other = new_stream();
  const Event inside = new_event();
  begin(stream);
  chain(stream, bench.x(), 1, 4);
  const CUresult recorded = cuEventRecordWithFlags(inside, stream, CU_EVENT_RECORD_EXTERNAL);
  bench.note("record", recorded);
  if (recorded != CUDA_SUCCESS) throw Skip("no external events in captures here");
  chain(stream, bench.y(), 2, 4);
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  for (int i = 0; i < 4; ++i) {
    bench.launch(exec, stream);
    SLUICE_MUST(cuStreamWaitEvent(other, inside, CU_EVENT_WAIT_DEFAULT));
    launch(other, Combine{bench.z(), bench.x()});
    join(stream, other);
  }
  bench.look();
}

// A graph that is launched in a capture becomes part of the capture.
void graph_into_capture(Bench& bench) {
  const Stream stream = new_stream();
  const Graph inner = captured(bench.x(), 1);
  const Exec inner_exec = instantiate(inner);
  begin(stream);
  chain(stream, bench.x(), 2, 3);
  const CUresult inside = cuGraphLaunch(inner_exec, stream);
  bench.note("inside", inside);
  Graph outer;
  const CUresult ended = cuStreamEndCapture(stream, outer.out());
  bench.note("end", ended);
  if (ended == CUDA_SUCCESS) {
    const Exec exec = instantiate(outer);
    bench.launch(exec, stream, 3);
  }
  bench.launch(inner_exec, stream, 2);
  bench.look();
}

constexpr Case kCases[] = {
    {"stream.per_thread", per_thread_stream},    {"stream.blocking", blocking_stream},
    {"stream.into_a_graph", into_a_graph},       {"stream.node_by_hand", node_by_hand},
    {"stream.external_events", external_events}, {"stream.graph_into_capture", graph_into_capture},
};

}  // namespace

std::span<const Case> stream_cases() { return kCases; }

}  // namespace sluice::graphs
