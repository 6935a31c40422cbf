// The program's own graph stays as the program made it, even if the driver refuses our waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "tests/intercept/building.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;
using Edges = std::vector<std::pair<CUgraphNode, CUgraphNode>>;

class GraphEdit : public Building {
 protected:
  struct Shape {
    Nodes nodes;
    Edges edges;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  static Shape shape_of(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_EQ(::cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    Nodes nodes(count);
    EXPECT_EQ(::cuGraphGetNodes(graph, nodes.data(), &count), CUDA_SUCCESS);
    return {nodes, fake::edges(graph)};
  }
  /// Whether every edge of `before` is still there, perhaps as a path through a wait.
  static bool keeps_order(const Shape& before, CUgraph graph) {
    const Edges now = fake::edges(graph);
    const auto leads = [&](CUgraphNode from, CUgraphNode to) {
      return std::find(now.begin(), now.end(), std::pair(from, to)) != now.end();
    };
    return std::all_of(before.edges.begin(), before.edges.end(), [&](const auto& edge) {
      return leads(edge.first, edge.second) ||
             std::any_of(now.begin(), now.end(), [&](const auto& first) {
               return first.first == edge.first && leads(first.second, edge.second);
             });
    });
  }
  int lines() const {
    const std::string said = errors();
    return static_cast<int>(std::count(said.begin(), said.end(), '\n'));
  }
};

TEST_F(GraphEdit, NodesAndEdgesStayInTheirOrder) {
  attach("device:1");
  CUgraph graph = new_graph();
  const CUgraphNode top = add_kernel(graph, {});
  const CUgraphNode left = add_kernel(graph, {top});
  const CUgraphNode right = add_kernel(graph, {top});
  add_kernel(graph, {right, top, left});
  const Shape before = shape_of(graph);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(fake::run_order(exec), "KWKWKWK");
  EXPECT_EQ(shape_of(graph), before);
  EXPECT_EQ(update(exec, graph), CUDA_SUCCESS);
  EXPECT_EQ(shape_of(graph), before);
}

// Random graphs, each made twice: an executable of the first is updated from the second.
TEST_F(GraphEdit, RandomGraphsStayAndAreUpdated) {
  attach("device:2");
  for (unsigned seed = 0; seed < 200; ++seed) {
    const auto build = [seed] {
      std::mt19937 random(seed);
      CUgraph graph = new_graph();
      Nodes nodes;
      for (std::size_t size = 1 + random() % 20; nodes.size() < size;) {
        Nodes behind;
        for (std::size_t edges = random() % 4; behind.size() < std::min(edges, nodes.size());) {
          const CUgraphNode from = nodes[random() % nodes.size()];
          if (std::find(behind.begin(), behind.end(), from) != behind.end()) break;
          behind.push_back(from);
        }
        const unsigned kind = random() % 8;
        if (kind == 0 && !behind.empty()) {
          nodes.push_back(add_programmatic(graph, behind[0]));
        } else if (kind == 1) {
          nodes.push_back(add_child(graph, behind, chain(static_cast<int>(random() % 5))));
        } else {
          nodes.push_back(add_kernel(graph, behind));
        }
      }
      return graph;
    };
    CUgraph first = build();
    CUgraph second = build();
    const std::array before{shape_of(first), shape_of(second)};
    const CUgraphExec exec = instantiate(first);
    const std::string runs = fake::run_order(exec);
    EXPECT_EQ(update(exec, second), CUDA_SUCCESS) << seed << ": " << runs;
    EXPECT_EQ(update(exec, first), CUDA_SUCCESS) << seed << ": " << runs;
    EXPECT_EQ(shape_of(first), before[0]) << seed;
    EXPECT_EQ(shape_of(second), before[1]) << seed;
    EXPECT_EQ(fake::run_order(exec), runs) << seed;
  }
}

// Nodes and edges cannot be removed from a graph with memory nodes.
TEST_F(GraphEdit, AGraphThatAllocatesMemoryIsLeftAlone) {
  catch_errors();
  attach("device:1");
  CUgraph graph = chain(3);
  CUgraphNode allocation = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  ASSERT_EQ(::cuGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &params), CUDA_SUCCESS);
  const Shape before = shape_of(graph);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(fake::run_order(exec), "KKKA");
  EXPECT_EQ(shape_of(graph), before);
  EXPECT_EQ(fake::count(Id::cuGraphAddBatchMemOpNode), 0U);
  EXPECT_EQ(update(exec, graph), CUDA_SUCCESS);
  EXPECT_EQ(lines(), 1) << errors();
}

TEST_F(GraphEdit, AGraphThatMayNotHoldWaitsIsInstantiatedWithout) {
  catch_errors();
  attach("device:2");
  CUgraph graph = chain(5);
  const Shape before = shape_of(graph);
  CUgraphExec bare = nullptr;
  ASSERT_EQ(::cuGraphInstantiateWithFlags(&bare, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
            CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(bare), "KKKKK");
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  ASSERT_EQ(::cuGraphInstantiateWithParams(&bare, graph, &params), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(bare), "KKKKK");
  // Seen to fail, naming one of our waits, when the answer of the first call was left there.
  EXPECT_EQ(params.hErrNode_out, nullptr);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  EXPECT_EQ(shape_of(graph), before);
  EXPECT_EQ(update(bare, chain(5)), CUDA_SUCCESS);
  const CUgraphExec with_waits = instantiate(graph);
  EXPECT_EQ(fake::run_order(with_waits), "KKWKKWK");
  EXPECT_EQ(lines(), 1) << errors();
}

// The program sees the answer of the driver to its own graph.
TEST_F(GraphEdit, AGraphThatFailsAnywayFailsAsItself) {
  attach("device:2");
  CUgraph graph = chain(5);
  const Shape before = shape_of(graph);
  for (const CUresult result : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE}) {
    fake::answer(Id::cuGraphInstantiateWithFlags, result);
    fake::clear();
    CUgraphExec exec = nullptr;
    EXPECT_EQ(::cuGraphInstantiateWithFlags(&exec, graph, 0), result);
    EXPECT_EQ(fake::count(Id::cuGraphInstantiateWithFlags), 2U);
    EXPECT_EQ(fake::calls().back().name(), "cuGraphInstantiateWithFlags")
        << "the last call of the driver is about a graph without our waits";
    EXPECT_EQ(shape_of(graph), before);
  }
  fake::answer(Id::cuGraphInstantiateWithFlags, CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(instantiate(graph)), "KKWKKWK");
}

// A refusal at any step leaves the graph as it was, and the executable without waits.
TEST_F(GraphEdit, ARefusalHalfWayLeavesTheGraphAsItWas) {
  attach("device:1");
  CUgraph graph = chain(4);
  const Shape before = shape_of(graph);
  for (const Id id :
       {Id::cuGraphAddBatchMemOpNode, Id::cuGraphRemoveDependencies, Id::cuGraphAddDependencies,
        Id::cuGraphNodeGetType, Id::cuGraphNodeGetDependencies_v2, Id::cuGraphGetNodes}) {
    fake::answer(id, CUDA_ERROR_UNKNOWN);
    const CUgraphExec exec = instantiate(graph);
    fake::answer(id, CUDA_SUCCESS);
    EXPECT_EQ(fake::run_order(exec), "KKKK") << static_cast<unsigned>(id);
    EXPECT_EQ(shape_of(graph), before) << static_cast<unsigned>(id);
  }
}

// Better a wait too many than an edge too few.
TEST_F(GraphEdit, AWaitThatCannotBeTakenOutKeepsTheOrder) {
  attach("device:1");
  for (const Id id : {Id::cuGraphDestroyNode, Id::cuGraphAddDependencies}) {
    CUgraph graph = chain(4);
    const Shape before = shape_of(graph);
    fake::fail_after(id, id == Id::cuGraphDestroyNode ? 0 : 3);
    instantiate(graph);
    fake::answer(id, CUDA_SUCCESS);
    EXPECT_TRUE(keeps_order(before, graph)) << static_cast<unsigned>(id);
    EXPECT_NE(instantiate(graph), nullptr);
  }
}

// The driver refuses to launch a graph whose waits read memory that is no longer registered.
TEST_F(GraphEdit, AGraphOfAnotherContextThanTheBoardsHoldsNoWaits) {
  catch_errors();
  attach("device:2");
  CUcontext primary = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  CUcontext other = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(instantiate(chain(3))), "KKK");
  ASSERT_EQ(::cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(instantiate(chain(3))), "KKWK");
  EXPECT_EQ(lines(), 1) << errors();
  ASSERT_EQ(::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_TRUE(fake::registered()) << "the board went with a context of no importance";
}

// The driver copies the nodes of the executable, including our waits. Seen to fail, with waits in
// the captured graph and a failed update, without GraphBook::captured().
TEST_F(GraphEdit, ACapturedLaunchOfAGraphHoldsNoWaits) {
  attach("device:2");
  CUgraph inner = chain(2);
  const CUgraphNode left = add_kernel(inner, {});
  add_kernel(inner, {left, add_kernel(inner, {})});
  const auto capture_launch = [&](CUgraphExec exec) {
    CUstream stream = make_stream();
    begin(stream);
    launch(stream);
    ::cuGraphLaunch(exec, stream);
    return end(stream);
  };
  CUgraph first = capture_launch(instantiate(inner));
  EXPECT_EQ(fake::run_order(first), "KG(KKKKK)");
  const CUgraphExec exec = instantiate(first);
  const std::string runs = fake::run_order(exec);
  EXPECT_NE(runs.find('W'), std::string::npos);
  CUgraph second = capture_launch(exec);
  EXPECT_EQ(fake::run_order(second), "KG(KG(KKKKK))");
  EXPECT_EQ(update(exec, capture_launch(instantiate(inner))), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), runs);
}

// The client has fallen back to another policy, and has reported that.
TEST_F(GraphEdit, ADeviceThatCannotWaitGetsNoWaits) {
  fake::set_stream_waits(false);
  attach("device:2");
  EXPECT_EQ(fake::run_order(instantiate(chain(3))), "KKK");
}

}  // namespace
}  // namespace sluice::intercept::test
