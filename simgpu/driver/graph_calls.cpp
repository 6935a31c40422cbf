#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().graphs.mutex);
  auto graph = std::make_shared<Graph>(driver().graphs.nodes);
  graph->handle = driver().graphs.graphs.add(graph);
  *phGraph = graph->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().graphs.mutex);
  return driver().graphs.graphs.take(hGraph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Graph> original = driver().graphs.graphs.find(originalGraph);
  if (!original || phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Graph> copy = original->clone();
  copy->handle = driver().graphs.graphs.add(copy);
  *phGraphClone = copy->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Graph> copy = driver().graphs.graphs.find(hClonedGraph);
  if (!copy || phNode == nullptr || hOriginalNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : copy->nodes) {
    if (node->original != hOriginalNode) continue;
    *phNode = node->handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
