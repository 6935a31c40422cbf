// Queries about a graph, and changes of its edges.
#include <functional>

#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

using NodeList = std::vector<CUgraphNode>;

// The parameters from which batch_works() made the work.
CUstreamBatchMemOpParams operation_of(const Work& work) {
  CUstreamBatchMemOpParams params{};
  const bool wide = work.width == 8;
  if (work.op == Op::kWaitValue) {
    params.waitValue.operation =
        wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    params.waitValue.address = work.a;
    params.waitValue.value64 = work.b;
    params.waitValue.flags = work.flags;
  } else {
    params.writeValue.operation =
        wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    params.writeValue.address = work.a;
    params.writeValue.value64 = work.b;
    params.writeValue.flags = work.flags;
  }
  return params;
}

template <typename F>
CUresult with_graph(CUgraph handle, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Graph> graph = driver().graphs.graphs.find(handle);
  return graph ? call(*graph) : CUDA_ERROR_INVALID_VALUE;
}

template <typename F>
CUresult with_node(CUgraphNode handle, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Node> node = driver().graphs.nodes.find(handle);
  return node ? call(*node) : CUDA_ERROR_INVALID_VALUE;
}

// The convention of all list queries: without an array, only the count is returned; with an array,
// as many entries as it holds, padded with null.
CUresult give_nodes(const NodeList& found, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < found.size() ? found[i] : nullptr;
    *count = std::min(*count, found.size());
  } else {
    *count = found.size();
  }
  return CUDA_SUCCESS;
}

CUresult give_links(const std::vector<Link>& links, CUgraphNode* out, CUgraphEdgeData* data,
                    bool may_drop_data, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t capacity = *count;
  NodeList found;
  for (const Link& link : links) {
    if (out != nullptr && data == nullptr && !may_drop_data && !is_plain(link.data)) {
      return CUDA_ERROR_LOSSY_QUERY;
    }
    found.push_back(link.node->handle);
  }
  for (std::size_t i = 0; out != nullptr && data != nullptr && i < capacity; ++i) {
    data[i] = i < links.size() ? links[i].data : kPlainEdge;
  }
  return give_nodes(found, out, count);
}

CUresult give_edges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                    std::size_t* count) {
  return with_graph(hGraph, [&](Graph& graph) {
    if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    NodeList sources;
    std::vector<Link> targets;
    for (const auto& node : graph.nodes) {
      for (const Link& link : node->dependents) {
        sources.push_back(node->handle);
        targets.push_back(link);
      }
    }
    std::size_t source_count = *count;
    const CUresult status = give_links(targets, to, data, false, count);
    return status == CUDA_SUCCESS ? give_nodes(sources, from, &source_count) : status;
  });
}

CUresult change_edges(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                      std::size_t count,
                      const std::function<bool(Node&, Node&, std::size_t)>& change) {
  return with_graph(hGraph, [&](Graph& graph) {
    std::vector<Link> sources;
    std::vector<Link> targets;
    if (!find_nodes(graph, from, nullptr, count, sources) ||
        !find_nodes(graph, to, nullptr, count, targets)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!change(*sources[i].node, *targets[i].node, i)) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult add_edges(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                   const CUgraphEdgeData* data, std::size_t count) {
  return change_edges(hGraph, from, to, count, [&](Node& a, Node& b, std::size_t i) {
    return &a != &b && Graph::connect(a, b, data != nullptr ? data[i] : kPlainEdge);
  });
}

CUresult remove_edges(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                      std::size_t count) {
  return change_edges(hGraph, from, to, count,
                      [](Node& a, Node& b, std::size_t) { return Graph::disconnect(a, b); });
}

}  // namespace

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return with_graph(hGraph, [&](Graph& graph) {
    NodeList found;
    for (const auto& node : graph.nodes) found.push_back(node->handle);
    return give_nodes(found, nodes, numNodes);
  });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return with_node(hNode, [&](Node& node) {
    if (nodeParams_out == nullptr || node.content.type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<CUstreamBatchMemOpParams>& operations = node.content.operations;
    operations.clear();
    for (const Work& work : node.content.works) operations.push_back(operation_of(work));
    *nodeParams_out = {};
    nodeParams_out->count = static_cast<unsigned>(operations.size());
    nodeParams_out->paramArray = operations.data();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return with_graph(hGraph, [&](Graph& graph) {
    NodeList found;
    for (const auto& node : graph.nodes) {
      if (node->dependencies.empty()) found.push_back(node->handle);
    }
    return give_nodes(found, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return give_edges(hGraph, from, to, nullptr, numEdges);
}
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  return give_edges(hGraph, from, to, edgeData, numEdges);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return with_node(hNode, [&](Node& node) {
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node.content.type;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return with_node(hNode, [&](Node& node) {
    return give_links(node.dependencies, dependencies, edgeData, false, numDependencies);
  });
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return with_node(hNode, [&](Node& node) {
    return give_links(node.dependents, dependentNodes, edgeData, false, numDependentNodes);
  });
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return add_edges(hGraph, from, to, nullptr, numDependencies);
}
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return add_edges(hGraph, from, to, edgeData, numDependencies);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return remove_edges(hGraph, from, to, numDependencies);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData*,
                                      size_t numDependencies) {
  return remove_edges(hGraph, from, to, numDependencies);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return with_node(hNode, [](Node& node) {
    node.graph->remove(node);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with_node(hNode, [&](Node& node) {
    if (nodeParams == nullptr || node.content.type != CU_GRAPH_NODE_TYPE_KERNEL) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *nodeParams = node.content.kernel;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return with_node(hNode, [&](Node& node) {
    if (phGraph == nullptr || !node.content.child) return CUDA_ERROR_INVALID_VALUE;
    Graph& child = *node.content.child;
    if (child.handle == nullptr) child.handle = driver().graphs.graphs.add(node.content.child);
    *phGraph = child.handle;
    return CUDA_SUCCESS;
  });
}
