#pragma once
#include "behaviour.hpp"

namespace fake {

// Capture

inline CUresult begin_capture(CUstream handle, CUgraph graph, CUstreamCaptureMode mode) {
  State& s = state();
  CUstream_st& stream = s.stream_of(handle);
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const bool owns = graph == nullptr;
  if (owns) {
    s.graphs.push_back(std::make_unique<CUgraph_st>());
    graph = s.graphs.back().get();
  }
  stream.capture = std::make_shared<Capture>(
      Capture{s.next_capture_id++, mode, std::this_thread::get_id(), false, owns, graph, &stream});
  stream.tail.clear();
  s.captures.push_back(stream.capture);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuStreamBeginCapture, CUstream stream) {
  return begin_capture(stream, nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SLUICE_FAKE_ENTRY(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(stream, nullptr, mode);
}
SLUICE_FAKE_ENTRY(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode*,
                  const CUgraphEdgeData*, std::size_t, CUstreamCaptureMode mode) {
  return begin_capture(stream, graph, mode);
}
SLUICE_FAKE_ENTRY(cuStreamEndCapture, CUstream handle, CUgraph* graph) {
  CUstream_st& stream = state().stream_of(handle);
  if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream.capture->origin != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  const std::shared_ptr<Capture> capture = stream.capture;
  for (const auto& other : state().streams) {
    if (other->capture == capture) other->capture.reset();
  }
  stream.capture.reset();
  *graph = capture->broken ? nullptr : capture->graph;
  return capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
inline CUstreamCaptureStatus status_of(const CUstream_st& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}
SLUICE_FAKE_ENTRY(cuStreamIsCapturing, CUstream handle, CUstreamCaptureStatus* status) {
  *status = status_of(state().stream_of(handle));
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuStreamGetCaptureInfo_v2, CUstream handle, CUstreamCaptureStatus* status,
                  cuuint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
                  std::size_t* count) {
  const CUstream_st& stream = state().stream_of(handle);
  *status = status_of(stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream.capture->id;
  if (graph != nullptr) *graph = stream.capture->graph;
  if (dependencies != nullptr) *dependencies = stream.tail.data();
  if (count != nullptr) *count = stream.tail.size();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode* mode) {
  std::swap(this_thread().mode, *mode);
  return CUDA_SUCCESS;
}

// Graphs

SLUICE_FAKE_ENTRY(cuGraphInstantiate, CUgraphExec* exec, CUgraph graph, CUgraphNode*, char*,
                  std::size_t) {
  return state().instantiate(exec, graph, 0);
}
SLUICE_FAKE_ENTRY(cuGraphInstantiate_v2, CUgraphExec* exec, CUgraph graph, CUgraphNode*, char*,
                  std::size_t) {
  return state().instantiate(exec, graph, 0);
}
SLUICE_FAKE_ENTRY(cuGraphInstantiateWithFlags, CUgraphExec* exec, CUgraph graph,
                  unsigned long long flags) {
  return state().instantiate(exec, graph, flags);
}
SLUICE_FAKE_ENTRY(cuGraphInstantiateWithParams, CUgraphExec* exec, CUgraph graph,
                  CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return state().instantiate(exec, graph, params->flags);
}
inline CUresult list(const std::vector<CUgraphNode>& found, CUgraphNode* nodes,
                     std::size_t* count) {
  if (nodes != nullptr) std::copy_n(found.begin(), std::min(*count, found.size()), nodes);
  *count = found.size();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphNodeGetDependencies, CUgraphNode node, CUgraphNode* nodes,
                  std::size_t* count) {
  return list(node->dependencies, nodes, count);
}
SLUICE_FAKE_ENTRY(cuGraphNodeGetDependentNodes, CUgraphNode node, CUgraphNode* nodes,
                  std::size_t* count) {
  std::vector<CUgraphNode> behind;
  for (const auto& other : node->graph->nodes) {
    const auto& before = other->dependencies;
    if (std::find(before.begin(), before.end(), node) != before.end()) {
      behind.push_back(other.get());
    }
  }
  return list(behind, nodes, count);
}
SLUICE_FAKE_ENTRY(cuGraphGetNodes, CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  const bool known = std::any_of(state().graphs.begin(), state().graphs.end(),
                                 [graph](const auto& one) { return one.get() == graph; });
  if (!known) return CUDA_ERROR_INVALID_VALUE;  // tests of routing pass invented handles
  std::vector<CUgraphNode> found;
  for (const auto& node : graph->nodes) found.push_back(node.get());
  return list(found, nodes, count);
}
SLUICE_FAKE_ENTRY(cuGraphNodeGetType, CUgraphNode node, CUgraphNodeType* type) {
  *type = node->kind == 'I'        ? CU_GRAPH_NODE_TYPE_CONDITIONAL
          : node->kind == 'W'      ? CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
          : node->child != nullptr ? CU_GRAPH_NODE_TYPE_GRAPH
                                   : CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphBatchMemOpNodeGetParams, CUgraphNode node,
                  CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  *params = {};
  params->count = 1;
  params->paramArray = &node->operation;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddChildGraphNode, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, std::size_t count, CUgraph child) {
  *added = state().add_node(graph, 'C', {dependencies, dependencies + count});
  (*added)->child = state().clone(child);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphChildGraphNodeGetGraph, CUgraphNode node, CUgraph* child) {
  *child = node->child;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddNode_v2, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, const CUgraphEdgeData*, std::size_t count,
                  CUgraphNodeParams* params) {
  if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_ERROR_NOT_SUPPORTED;
  *added = state().add_node(graph, 'I', {dependencies, dependencies + count});
  state().graphs.push_back(std::make_unique<CUgraph_st>());
  (*added)->child = state().graphs.back().get();
  params->conditional.phGraph_out = &(*added)->child;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphClone, CUgraph* clone, CUgraph graph) {
  *clone = state().clone(graph);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph,
                  CUgraphExecUpdateResultInfo*) {
  return exec->nodes == nodes(graph) ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}
SLUICE_FAKE_ENTRY(cuGraphAddDependencies, CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                  std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i]->dependencies.push_back(from[i]);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphDestroyNode, CUgraphNode node) {
  const CUgraph graph = node->graph;
  for (const auto& other : graph->nodes) std::erase(other->dependencies, node);
  std::erase_if(graph->nodes, [&](const auto& other) { return other.get() == node; });
  return CUDA_SUCCESS;
}

}  // namespace fake
