#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/intercept/capturing.hpp"

namespace sluice::intercept::test {

/// Graphs that are built node by node.
class Building : public Capturing {
 protected:
  using Nodes = std::vector<CUgraphNode>;
  /// A function that was never launched outside a graph.
  static constexpr std::uintptr_t kUnseen = 0x700;

  static CUgraph new_graph() {
    CUgraph graph = nullptr;
    EXPECT_EQ(::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    return graph;
  }
  static CUgraphNode add_kernel(CUgraph graph, const Nodes& before,
                                std::uintptr_t function = kUnseen, unsigned blocks = 1,
                                unsigned threads = 1) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = reinterpret_cast<CUfunction>(function);
    params.gridDimX = blocks;
    params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = threads;
    params.blockDimY = params.blockDimZ = 1;
    CUgraphNode node = nullptr;
    EXPECT_EQ(::cuGraphAddKernelNode_v2(&node, graph, before.data(), before.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  /// A kernel that may start before the node in front has ended.
  static CUgraphNode add_programmatic(CUgraph graph, CUgraphNode before) {
    CUgraphEdgeData edge{};
    edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    CUgraphNode node = nullptr;
    EXPECT_EQ(::cuGraphAddNode_v2(&node, graph, &before, &edge, 1, &params), CUDA_SUCCESS);
    return node;
  }
  static CUgraphNode add_child(CUgraph graph, const Nodes& before, CUgraph child) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(::cuGraphAddChildGraphNode(&node, graph, before.data(), before.size(), child),
              CUDA_SUCCESS);
    return node;
  }
  static CUgraph child_of(CUgraphNode node) {
    CUgraph child = nullptr;
    EXPECT_EQ(::cuGraphChildGraphNodeGetGraph(node, &child), CUDA_SUCCESS);
    return child;
  }
  /// Returns the node and its body.
  static std::pair<CUgraphNode, CUgraph> add_conditional(CUgraph graph, const Nodes& before) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.size = 1;
    CUgraphNode node = nullptr;
    EXPECT_EQ(::cuGraphAddNode_v2(&node, graph, before.data(), nullptr, before.size(), &params),
              CUDA_SUCCESS);
    return {node, params.conditional.phGraph_out[0]};
  }
  static CUgraph chain(int kernels, std::uintptr_t function = kUnseen, unsigned blocks = 1,
                       unsigned threads = 1) {
    CUgraph graph = new_graph();
    Nodes before;
    for (int i = 0; i < kernels; ++i) {
      before = {add_kernel(graph, before, function, blocks, threads)};
    }
    return graph;
  }
  static CUresult update(CUgraphExec exec, CUgraph graph) {
    CUgraphExecUpdateResultInfo info{};
    return ::cuGraphExecUpdate_v2(exec, graph, &info);
  }
};

}  // namespace sluice::intercept::test
