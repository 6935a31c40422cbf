// The exported functions of captures and graphs, as in hooks.cpp.
#include "intercept/client/process.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/hook.hpp"
#include "intercept/pacing/capture.hpp"
#include "intercept/pacing/wait_nodes.hpp"

using namespace sluice::intercept;

namespace {

/// A question about a capturing stream, or about the legacy one, would break the capture.
template <class Call>
CUresult begin_capture(CUstream stream, bool into_graph, Call call) {
  const QueryBan quiet = QueryBan::about_stream(stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) capture_begun(stream, into_graph);
  quiet.lift();
  g_process.forget_remembered();
  return result;
}

template <class Call>
CUresult end_capture(CUstream stream, CUgraph* graph, Call call) noexcept {
  const Ending ending = capture_ending(stream);
  const CUresult result = call();
  const bool captured = result == CUDA_SUCCESS && graph != nullptr;
  capture_ended(ending, stream, captured ? *graph : nullptr);
  return result;
}

/// Some graphs may not hold a wait node (device-launchable ones, for instance): they lose ours, and
/// are preemptible only in front.
template <class Call>
CUresult instantiate(const CUgraphExec* exec, CUgraph graph, Call call) noexcept {
  CUresult result = call();
  const bool bare =
      result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && take_waits_out(graph);
  if (bare) {
    report_ungated_graph();
    result = call();
  }
  if (result == CUDA_SUCCESS && exec != nullptr) {
    graph_instantiated(*exec, graph);
    note_ungated(*exec, bare);
  }
  return result;
}

/// An executable without our waits takes up a graph with them only if that loses them too.
template <class Call>
CUresult update(CUgraphExec exec, CUgraph graph, Call call) noexcept {
  const CUresult result = call();
  if (result == CUDA_SUCCESS || !is_ungated(exec) || !take_waits_out(graph)) return result;
  return call();
}

template <class Call>
CUresult add_node(const CUgraphNode* node, const CUgraphNodeParams* params, Call call) noexcept {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && node != nullptr && params != nullptr &&
      params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    note_bodies(*node, params->conditional);
  }
  return result;
}

}  // namespace

// --- Capture ------------------------------------------------------------------------------------

#define SLUICE_BEGIN_CAPTURE_V1(name, named)                                                      \
  SLUICE_EXPORT CUresult name(CUstream stream) {                                                  \
    return begin_capture(named(stream), false, [&] { return call_real(driver().name, stream); }); \
  }
SLUICE_BEGIN_CAPTURE_V1(cuStreamBeginCapture, plain)
SLUICE_BEGIN_CAPTURE_V1(cuStreamBeginCapture_ptsz, per_thread)

#define SLUICE_BEGIN_CAPTURE(name, named)                                         \
  SLUICE_EXPORT CUresult name(CUstream stream, CUstreamCaptureMode mode) {        \
    return begin_capture(named(stream), false,                                    \
                         [&] { return call_real(driver().name, stream, mode); }); \
  }
SLUICE_BEGIN_CAPTURE(cuStreamBeginCapture_v2, plain)
SLUICE_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, per_thread)

#define SLUICE_BEGIN_CAPTURE_TO_GRAPH(name, named)                                             \
  SLUICE_EXPORT CUresult name(CUstream stream, CUgraph graph, const CUgraphNode* dependencies, \
                              const CUgraphEdgeData* edges, size_t count,                      \
                              CUstreamCaptureMode mode) {                                      \
    return begin_capture(named(stream), true, [&] {                                            \
      return call_real(driver().name, stream, graph, dependencies, edges, count, mode);        \
    });                                                                                        \
  }
SLUICE_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph, plain)
SLUICE_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, per_thread)

#define SLUICE_END_CAPTURE(name, named)                                          \
  SLUICE_EXPORT CUresult name(CUstream stream, CUgraph* graph) {                 \
    return end_capture(named(stream), graph,                                     \
                       [&] { return call_real(driver().name, stream, graph); }); \
  }
SLUICE_END_CAPTURE(cuStreamEndCapture, plain)
SLUICE_END_CAPTURE(cuStreamEndCapture_ptsz, per_thread)

// --- Graph --------------------------------------------------------------------------------------

#define SLUICE_INSTANTIATE_LOG(name)                                                     \
  SLUICE_EXPORT CUresult name(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, \
                              char* log, size_t log_size) {                              \
    return instantiate(exec, graph, [&] {                                                \
      return call_real(driver().name, exec, graph, error_node, log, log_size);           \
    });                                                                                  \
  }
SLUICE_INSTANTIATE_LOG(cuGraphInstantiate)
SLUICE_INSTANTIATE_LOG(cuGraphInstantiate_v2)

SLUICE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                   unsigned long long flags) {
  return instantiate(exec, graph, [&] {
    return call_real(driver().cuGraphInstantiateWithFlags, exec, graph, flags);
  });
}

#define SLUICE_INSTANTIATE_PARAMS(name)                                                \
  SLUICE_EXPORT CUresult name(CUgraphExec* exec, CUgraph graph,                        \
                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {                 \
    return instantiate(exec, graph,                                                    \
                       [&] { return call_real(driver().name, exec, graph, params); }); \
  }
SLUICE_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams)
SLUICE_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams_ptsz)

SLUICE_EXPORT CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph,
                                      const CUgraphNode* dependencies, size_t count,
                                      CUgraphNodeParams* params) {
  return add_node(node, params, [&] {
    return call_real(driver().cuGraphAddNode, node, graph, dependencies, count, params);
  });
}
SLUICE_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph,
                                         const CUgraphNode* dependencies,
                                         const CUgraphEdgeData* edges, size_t count,
                                         CUgraphNodeParams* params) {
  return add_node(node, params, [&] {
    return call_real(driver().cuGraphAddNode_v2, node, graph, dependencies, edges, count, params);
  });
}

SLUICE_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                         CUgraphExecUpdateResult* why) {
  return update(exec, graph, [&] {
    return call_real(driver().cuGraphExecUpdate, exec, graph, error_node, why);
  });
}
SLUICE_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                            CUgraphExecUpdateResultInfo* info) {
  return update(exec, graph,
                [&] { return call_real(driver().cuGraphExecUpdate_v2, exec, graph, info); });
}

SLUICE_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  graph_destroyed(graph);
  return call_real(driver().cuGraphDestroy, graph);
}
