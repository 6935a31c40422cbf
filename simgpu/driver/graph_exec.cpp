#include <algorithm>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/enqueue.hpp"

using namespace sluice::simgpu;

namespace {

void flatten(const Graph& graph, std::vector<Work>& works) {
  for (const Node* node : graph.order()) {
    works.insert(works.end(), node->content.works.begin(), node->content.works.end());
    if (node->content.child) flatten(*node->content.child, works);
  }
}

CUresult upload(const Graph& graph, std::uint64_t& number) {
  static std::uint64_t next_number = 1;
  std::vector<Work> works;
  flatten(graph, works);
  const std::size_t bytes = works.size() * sizeof(Work);
  const sluice::base::Fd file = make_shared_file(std::max<std::size_t>(bytes, 1));
  if (!file) return CUDA_ERROR_OUT_OF_MEMORY;
  if (pwrite(file.get(), works.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Request request;
  request.kind = RequestKind::kUploadGraph;
  request.a = next_number++;
  request.b = works.size();
  if (!driver().connection.request(request, file.get())) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  number = request.a;
  return CUDA_SUCCESS;
}

// Drops an upload from the GPU process when no queued launch needs it any more.
void drop_ended() {
  std::erase_if(driver().graphs.ended, [](const std::shared_ptr<GraphExec>& exec) {
    const bool done =
        std::all_of(exec->launches.begin(), exec->launches.end(),
                    [](const auto& launch) { return launch.first->completed(launch.second); });
    if (!done) return false;
    Request request;
    request.kind = RequestKind::kDropGraph;
    request.a = exec->number;
    driver().connection.request(request);
    return true;
  });
}

// Creating and ending executable graphs is unsafe during captures and needs all channels.
CUresult take_turn() {
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  if (const std::shared_ptr<Context> context = current_context()) pass_all_channels(*context);
  return CUDA_SUCCESS;
}

struct Instantiation {
  CUresult status = CUDA_SUCCESS;
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  CUgraphNode error = nullptr;
};

// The first node that a graph launched from the device must not contain.
CUgraphNode not_for_device_launch(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    const NodeContent& content = node->content;
    const bool inside = content.child && not_for_device_launch(*content.child) != nullptr;
    if (inside || content.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
        content.type == CU_GRAPH_NODE_TYPE_HOST) {
      return node->handle;
    }
  }
  return nullptr;
}

Instantiation instantiate(CUgraphExec* out, CUgraph handle, std::uint64_t flags) {
  constexpr std::uint64_t kKnown = 15;
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) {
    return {status, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
  }
  if (const CUresult status = take_turn(); status != CUDA_SUCCESS) {
    return {status, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
  }
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Graph> graph = driver().graphs.graphs.find(handle);
  if (!graph || out == nullptr || (flags & ~kKnown) != 0) {
    return {CUDA_ERROR_INVALID_VALUE, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
  }
  if (graph->order().size() != graph->nodes.size()) {
    return {CUDA_ERROR_INVALID_VALUE, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, nullptr};
  }
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    if (CUgraphNode node = not_for_device_launch(*graph)) {
      return {CUDA_ERROR_INVALID_VALUE, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, node};
    }
  }
  drop_ended();
  auto exec = std::make_shared<GraphExec>();
  exec->graph = graph->clone();
  exec->flags = flags;
  const CUresult status = upload(*exec->graph, exec->number);
  if (status != CUDA_SUCCESS) return {status, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
  *out = driver().graphs.execs.add(exec);
  return {};
}

CUgraphExecUpdateResult compare(const Graph& from, const Graph& to, CUgraphNode& error) {
  if (from.nodes.size() != to.nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  const std::vector<const Node*> before = from.order();
  const std::vector<const Node*> after = to.order();
  for (std::size_t i = 0; i < after.size(); ++i) {
    error = after[i]->handle;
    if (before[i]->dependencies.size() != after[i]->dependencies.size()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    if (before[i]->content.type != after[i]->content.type) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
  }
  error = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult launch_in_capture(Stream& stream, const GraphExec& exec) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_GRAPH;
  {
    const std::lock_guard lock(driver().graphs.mutex);
    content.child = exec.graph->clone();
  }
  return enqueue(stream, std::move(content));
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return instantiate(phGraphExec, hGraph, flags).status;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Instantiation made = instantiate(phGraphExec, hGraph, instantiateParams->flags);
  instantiateParams->result_out = made.result;
  instantiateParams->hErrNode_out = made.error;
  return made.status;
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = 0;
  return instantiate(phGraphExec, hGraph, 0).status;
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<GraphExec> exec = driver().graphs.execs.find(hGraphExec);
  if (!exec || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return with_stream(hStream, [&](Stream&) {
    return driver().graphs.execs.find(hGraph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return cuGraphUpload(hGraphExec, per_thread(hStream));
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<GraphExec> exec = driver().graphs.execs.find(hGraph);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  CUresult status = find_stream(hStream, stream);
  if (status != CUDA_SUCCESS) return status;
  if (stream->capturing) return launch_in_capture(*stream, *exec);
  Work work;
  work.op = Op::kGraph;
  {
    const std::lock_guard lock(driver().graphs.mutex);
    work.a = exec->number;
  }
  std::uint64_t sequence = 0;
  status = submit(*stream, {&work, 1}, &sequence);
  if (status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().graphs.mutex);
  for (auto& [other, last] : exec->launches) {
    if (other != stream) continue;
    last = sequence;
    return CUDA_SUCCESS;
  }
  exec->launches.emplace_back(stream, sequence);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return cuGraphLaunch(hGraphExec, per_thread(hStream));
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (const CUresult status = take_turn(); status != CUDA_SUCCESS) return status;
  std::shared_ptr<GraphExec> exec = driver().graphs.execs.take(hGraphExec);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().graphs.mutex);
  driver().graphs.ended.push_back(std::move(exec));
  drop_ended();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<GraphExec> exec = driver().graphs.execs.find(hGraphExec);
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Graph> graph = driver().graphs.graphs.find(hGraph);
  if (!exec || !graph) return CUDA_ERROR_INVALID_VALUE;
  *resultInfo = {};
  resultInfo->result = compare(*exec->graph, *graph, resultInfo->errorNode);
  if (resultInfo->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  auto before = std::make_shared<GraphExec>(*exec);
  const CUresult status = upload(*graph, exec->number);
  if (status != CUDA_SUCCESS) return status;
  exec->graph = graph->clone();
  driver().graphs.ended.push_back(std::move(before));
  drop_ended();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult status = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return status;
}
