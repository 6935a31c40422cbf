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
  const CUresult result = state().instantiate(exec, graph, params->flags);
  if (result != CUDA_SUCCESS) {
    params->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    params->hErrNode_out = graph->nodes.back().get();
  }
  return result;
}
inline CUresult list(const std::vector<CUgraphNode>& found, CUgraphNode* nodes,
                     std::size_t* count) {
  if (nodes != nullptr) std::copy_n(found.begin(), std::min(*count, found.size()), nodes);
  *count = found.size();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphNodeGetDependencies, CUgraphNode node, CUgraphNode* nodes,
                  std::size_t* count) {
  if (nodes != nullptr && !node->programmatic.empty()) return CUDA_ERROR_LOSSY_QUERY;
  return list(node->dependencies, nodes, count);
}
SLUICE_FAKE_ENTRY(cuGraphNodeGetDependencies_v2, CUgraphNode node, CUgraphNode* nodes,
                  CUgraphEdgeData* edges, std::size_t* count) {
  for (std::size_t i = 0; edges != nullptr && i < node->dependencies.size(); ++i) {
    edges[i] = {};
    if (node->programmatic.contains(node->dependencies[i])) {
      edges[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
  }
  return list(node->dependencies, nodes, count);
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
          : node->kind == 'A'      ? CU_GRAPH_NODE_TYPE_MEM_ALLOC
          : node->kind == 'F'      ? CU_GRAPH_NODE_TYPE_MEM_FREE
          : node->child != nullptr ? CU_GRAPH_NODE_TYPE_GRAPH
          : node->kind == 'C'      ? CU_GRAPH_NODE_TYPE_MEMCPY
                                   : CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphKernelNodeGetParams_v2, CUgraphNode node,
                  CUDA_KERNEL_NODE_PARAMS* params) {
  *params = node->kernel;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphBatchMemOpNodeGetParams, CUgraphNode node,
                  CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  *params = {};
  params->count = static_cast<unsigned>(node->operations.size());
  params->paramArray = node->operations.data();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphChildGraphNodeGetGraph, CUgraphNode node, CUgraph* child) {
  *child = node->child;
  return CUDA_SUCCESS;
}

// Building graphs

/// No node and no edge of a graph that allocates memory can be taken out.
inline bool is_fixed(CUgraph graph) {
  return std::any_of(graph->nodes.begin(), graph->nodes.end(),
                     [](const auto& node) { return node->kind == 'A' || node->kind == 'F'; });
}
SLUICE_FAKE_ENTRY(cuGraphCreate, CUgraph* graph, unsigned) {
  state().graphs.push_back(std::make_unique<CUgraph_st>());
  *graph = state().graphs.back().get();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddKernelNode_v2, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, std::size_t count,
                  const CUDA_KERNEL_NODE_PARAMS* params) {
  *added = state().add_node(graph, 'K', {dependencies, dependencies + count});
  (*added)->kernel = *params;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddMemAllocNode, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS*) {
  *added = state().add_node(graph, 'A', {dependencies, dependencies + count});
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddBatchMemOpNode, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, std::size_t count,
                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  *added = state().add_node(graph, 'W', {dependencies, dependencies + count});
  (*added)->operations.assign(params->paramArray, params->paramArray + params->count);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddChildGraphNode, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, std::size_t count, CUgraph child) {
  *added = state().add_node(graph, 'C', {dependencies, dependencies + count});
  (*added)->child = state().clone(child);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddNode_v2, CUgraphNode* added, CUgraph graph,
                  const CUgraphNode* dependencies, const CUgraphEdgeData* edges, std::size_t count,
                  CUgraphNodeParams* params) {
  const bool conditional = params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  if (!conditional && params->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_NOT_SUPPORTED;
  *added = state().add_node(graph, conditional ? 'I' : 'K', {dependencies, dependencies + count});
  for (std::size_t i = 0; edges != nullptr && i < count; ++i) {
    if (edges[i].type != 0) (*added)->programmatic.insert(dependencies[i]);
  }
  if (!conditional) return CUDA_SUCCESS;
  state().graphs.push_back(std::make_unique<CUgraph_st>());
  (*added)->child = state().graphs.back().get();
  params->conditional.phGraph_out = &(*added)->child;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphClone, CUgraph* clone, CUgraph graph) {
  *clone = state().clone(graph);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphAddDependencies, CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                  std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    auto& before = to[i]->dependencies;
    if (std::find(before.begin(), before.end(), from[i]) != before.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    before.push_back(from[i]);
  }
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphRemoveDependencies, CUgraph graph, const CUgraphNode* from,
                  const CUgraphNode* to, std::size_t count) {
  if (is_fixed(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::erase(to[i]->dependencies, from[i]) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphDestroyNode, CUgraphNode node) {
  const CUgraph graph = node->graph;
  if (is_fixed(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (const auto& other : graph->nodes) std::erase(other->dependencies, node);
  // The memory stays, so that a test with a stale handle reads what exists.
  const auto found = std::find_if(graph->nodes.begin(), graph->nodes.end(),
                                  [&](const auto& other) { return other.get() == node; });
  state().destroyed_nodes.push_back(std::move(*found));
  graph->nodes.erase(found);
  return CUDA_SUCCESS;
}

// Executables

SLUICE_FAKE_ENTRY(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph,
                  CUgraphExecUpdateResultInfo* info) {
  if (!state().is_exec(exec)) return CUDA_SUCCESS;
  const CUresult result = state().update(exec->graph, graph);
  if (result == CUDA_SUCCESS) {
    exec->graph = state().clone(graph);
  } else if (info != nullptr && !graph->nodes.empty()) {
    info->errorNode = graph->nodes.back().get();
  }
  return result;
}
/// Driver 580 pairs the nodes of a child graph that is set anew by their numbers.
inline bool same_numbers(CUgraph left, CUgraph right) {
  return std::equal(
      left->nodes.begin(), left->nodes.end(), right->nodes.begin(), right->nodes.end(),
      [](const auto& one, const auto& other) { return one->number == other->number; });
}
SLUICE_FAKE_ENTRY(cuGraphExecChildGraphNodeSetParams, CUgraphExec exec, CUgraphNode node,
                  CUgraph child) {
  if (!state().is_exec(exec)) return CUDA_SUCCESS;
  const auto found = exec->clones.find(node);
  if (found == exec->clones.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = state().update(found->second->child, child);
  if (result != CUDA_SUCCESS || !same_numbers(found->second->child, child)) {
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  found->second->child = state().clone(child);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphExecDestroy, CUgraphExec exec) {
  return state().is_exec(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SLUICE_FAKE_ENTRY(cuGraphExecNodeSetParams, CUgraphExec exec, CUgraphNode node,
                  CUgraphNodeParams* params) {
  if (params->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_SUCCESS;
  return behave(Tag<Id::cuGraphExecChildGraphNodeSetParams>{}, lock, exec, node,
                params->graph.graph);
}

}  // namespace fake
