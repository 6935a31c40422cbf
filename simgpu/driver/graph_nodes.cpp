// Nodes that the application adds itself.
#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/launch.hpp"
#include "simgpu/driver/memop.hpp"

using namespace sluice::simgpu;

namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, std::size_t count,
             NodeContent content) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Graph> graph = driver().graphs.graphs.find(handle);
  std::vector<Link> links;
  if (!graph || !find_nodes(*graph, dependencies, nullptr, count, links)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = graph->add(std::move(content), links).handle;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Function> function = driver().functions.find(nodeParams->func);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_KERNEL;
  content.kernel = *nodeParams;
  content.kernel.kernelParams = nullptr;
  content.kernel.extra = nullptr;
  Work work;
  const CUresult status = kernel_work(*function, *nodeParams, work);
  if (status != CUDA_SUCCESS) return status;
  content.works.push_back(work);
  return add(phGraphNode, hGraph, dependencies, numDependencies, std::move(content));
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  return add(phGraphNode, hGraph, dependencies, numDependencies, NodeContent());
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (nodeParams == nullptr || nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver().host_calls.start();
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_HOST;
  content.works.push_back(host_work(nodeParams->fn, nodeParams->userData));
  return add(phGraphNode, hGraph, dependencies, numDependencies, std::move(content));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  const CUresult status = batch_works(nodeParams->count, nodeParams->paramArray, content.works);
  if (status != CUDA_SUCCESS) return status;
  return add(phGraphNode, hGraph, dependencies, numDependencies, std::move(content));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_GRAPH;
  {
    const std::lock_guard lock(driver().graphs.mutex);
    const std::shared_ptr<Graph> child = driver().graphs.graphs.find(childGraph);
    if (!child) return CUDA_ERROR_INVALID_VALUE;
    content.child = child->clone();
  }
  return add(phGraphNode, hGraph, dependencies, numDependencies, std::move(content));
}
