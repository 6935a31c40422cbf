// Executable graphs of every origin hold waits, and are updated as without Sluice.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "shm/policy.hpp"
#include "tests/intercept/building.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;

class GraphBook : public Building {
 protected:
  /// What `sluice set` does, without the wait for the next tick of the watcher.
  void set_policy(const char* policy) {
    const std::uint64_t wanted = shm::parse_policy(policy)->pack();
    slot().requested_policy.store(wanted);
    EXPECT_TRUE(eventually([&] { return slot().policy.load() == wanted; }));
  }
  /// Launches the graph until the client knows its duration.
  void learn_graph(CUgraphExec exec, float ms) {
    fake::set_elapsed(ms);
    EXPECT_TRUE(eventually([&] {
      const std::uint64_t unknown = slot().unknown_launches.load();
      ::cuGraphLaunch(exec, nullptr);
      std::this_thread::sleep_for(1ms);
      return slot().unknown_launches.load() == unknown;
    }));
    ::cuGraphLaunch(exec, nullptr);  // learns the durations of its kernels
  }
};

TEST_F(GraphBook, OfACapture) {
  attach("device:2");
  CUgraph graph = capture(make_stream(), 5);
  EXPECT_EQ(fake::run_order(instantiate(graph)), "KKWKKWK");
  EXPECT_EQ(fake::run_order(graph), "KKKKK");
}

TEST_F(GraphBook, OfSingleNodes) {
  attach("device:2");
  EXPECT_EQ(fake::run_order(instantiate(chain(5))), "KKWKKWK");
}

TEST_F(GraphBook, OfACaptureIntoAnExistingGraph) {
  attach("device:2");
  CUgraph graph = new_graph();
  const CUgraphNode first = add_kernel(graph, {});
  CUstream stream = make_stream();
  ASSERT_EQ(::cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  for (int i = 0; i < 4; ++i) launch(stream);
  end(stream);
  EXPECT_EQ(counted(shm::Count::kCaptured), 4U);
  EXPECT_EQ(fake::run_order(instantiate(graph)), "KKWKKWK");
}

TEST_F(GraphBook, OfAClone) {
  attach("device:2");
  CUgraph clone = nullptr;
  ASSERT_EQ(::cuGraphClone(&clone, chain(3)), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(instantiate(clone)), "KKWK");
}

TEST_F(GraphBook, OfAChildGraph) {
  attach("device:2");
  CUgraph graph = chain(1);
  const CUgraphNode child = add_child(graph, {}, chain(4));
  EXPECT_EQ(fake::run_order(instantiate(graph)), "KC(KWKKWK)");
  EXPECT_EQ(fake::run_order(child_of(child)), "KKKK");
}

// Every instantiation function of the driver, not only the plain one.
TEST_F(GraphBook, ByEveryWayToInstantiate) {
  attach("device:2");
  CUgraph graph = chain(3);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  ASSERT_EQ(::cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KKWK");
  ASSERT_EQ(::cuGraphInstantiateWithParams_ptsz(&exec, graph, &params), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KKWK");
  ASSERT_EQ(::cuGraphInstantiate_v2(&exec, graph, nullptr, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KKWK");
  ASSERT_EQ(::cuGraphInstantiate(&exec, graph, nullptr, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KKWK");
}

// What was learned between two captures of the same code, or of the code for another size, must not
// matter. Seen to fail when an update got the waits for the durations at its own time.
TEST_F(GraphBook, AnUpdateWorksWhateverWasLearned) {
  attach("device:200us");
  outrank();
  learn(3, 0.5F);  // by launches of one block
  CUgraph seven = chain(12, 3, 1);
  CUgraph eight = chain(12, 3, 8);
  const CUgraphExec exec = instantiate(seven);
  EXPECT_EQ(fake::run_order(exec), "WKWKWKWKWKWKWKWKWKWKWKWK");
  EXPECT_EQ(fake::run_order(instantiate(eight)), "KKKKKKKKWKKKK");
  EXPECT_EQ(update(exec, eight), CUDA_SUCCESS);
  for (int i = 0; i < 40; ++i) learn(3, 0.001F);
  EXPECT_EQ(update(exec, seven), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "WKWKWKWKWKWKWKWKWKWKWKWK");
  EXPECT_EQ(fake::nodes(seven), "KKKKKKKKKKKK");
  CUgraphNode wrong = nullptr;
  CUgraphExecUpdateResult why{};
  EXPECT_EQ(::cuGraphExecUpdate(exec, eight, &wrong, &why), CUDA_SUCCESS);
}

// The same for a policy that changed in between.
TEST_F(GraphBook, AnUpdateWorksUnderAnotherPolicy) {
  attach("device:2");
  CUgraph graph = chain(5);
  const CUgraphExec at_two = instantiate(graph);
  set_policy("device:3");
  const CUgraphExec at_three = instantiate(chain(5));
  set_policy("gate");
  const CUgraphExec without = instantiate(chain(5));
  EXPECT_EQ(fake::run_order(without), "KKKKK");
  for (const CUgraphExec exec : {at_two, at_three, without}) {
    const std::string before = fake::run_order(exec);
    EXPECT_EQ(update(exec, graph), CUDA_SUCCESS) << before;
    EXPECT_EQ(fake::run_order(exec), before);
  }
  set_policy("device:1");
  EXPECT_EQ(update(without, graph), CUDA_SUCCESS);
  EXPECT_EQ(update(at_three, graph), CUDA_SUCCESS);
}

// The driver pairs nodes by their edges, in whatever order they were made.
TEST_F(GraphBook, AnUpdateDoesNotDependOnTheOrderInWhichNodesWereMade) {
  attach("device:1");
  CUgraph graph = chain(2);
  const CUgraphExec exec = instantiate(graph);
  CUgraph other = new_graph();
  const CUgraphNode last = add_kernel(other, {});
  const CUgraphNode first = add_kernel(other, {});
  ASSERT_EQ(::cuGraphAddDependencies(other, &first, &last, 1), CUDA_SUCCESS);
  EXPECT_EQ(update(exec, other), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KWK");
}

TEST_F(GraphBook, AnUpdateFromAnotherGraphFailsAsItDoesWithoutWaits) {
  attach("device:2");
  const CUgraphExec exec = instantiate(chain(5));
  CUgraph longer = chain(6);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(::cuGraphExecUpdate_v2(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(fake::run_order(longer), "KKKKKK");
  EXPECT_EQ(update(exec, chain(5)), CUDA_SUCCESS);
}

// In an error, the driver may name one of our waits.
TEST_F(GraphBook, AFailedUpdateNamesANodeOfTheProgram) {
  attach("device:2");
  const CUgraphExec exec = instantiate(chain(3));
  CUgraph graph = new_graph();
  Nodes nodes{add_kernel(graph, {}), add_kernel(graph, {}), add_kernel(graph, {})};
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(::cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_NE(std::find(nodes.begin(), nodes.end(), info.errorNode), nodes.end());
}

// JAX sets child graphs in its executables anew.
TEST_F(GraphBook, AChildGraphIsSetAnewInAnExecutable) {
  attach("device:2");
  CUgraph graph = chain(1);
  const CUgraphNode child = add_child(graph, {}, chain(4));
  const CUgraphExec exec = instantiate(graph);
  CUgraph other = chain(4);
  EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(exec, child, other), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KC(KWKKWK)");
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = other;
  EXPECT_EQ(::cuGraphExecNodeSetParams(exec, child, &params), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "KC(KWKKWK)");
  EXPECT_EQ(fake::run_order(other), "KKKK");
  EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(exec, child, chain(3)),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
}

// The driver pairs the nodes of a child graph by numbers, of which our waits use some. Seen to fail
// on one H100: JAX sets a child graph that it has set before.
TEST_F(GraphBook, AChildGraphIsSetAnewAgainAndAgain) {
  attach("device:2");
  CUgraph graph = chain(1);
  const CUgraphNode child = add_child(graph, {}, chain(4));
  instantiate(graph);
  const CUgraphExec second = instantiate(graph);
  CUgraph other = chain(4);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(second, child, other), CUDA_SUCCESS);
  }
  EXPECT_EQ(fake::run_order(second), "KC(KWKKWK)");
}

TEST_F(GraphBook, AChildGraphOfASpacingHasItsWaitInFront) {
  attach("device:2");
  CUgraph graph = chain(2);
  const CUgraphNode child = add_child(graph, {}, chain(2));
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(fake::run_order(exec), "KWC(KK)WK");
  EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(exec, child, chain(2)), CUDA_SUCCESS);
}

TEST_F(GraphBook, OfTwoChildrenEachHasItsOwnWaits) {
  attach("device:2");
  CUgraph graph = new_graph();
  const CUgraphNode first = add_child(graph, {}, chain(3));
  const CUgraphNode second = add_child(graph, {first}, chain(4));
  const CUgraphExec exec = instantiate(graph);
  const std::string runs = fake::run_order(exec);
  EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(exec, second, chain(4)), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(exec, first, chain(3)), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), runs);
}

TEST_F(GraphBook, AChildOfAChildIsSetAnew) {
  attach("device:2");
  CUgraph inner = new_graph();
  add_child(inner, {}, chain(3));
  CUgraph graph = new_graph();
  const CUgraphNode outer = add_child(graph, {}, inner);
  CUgraphNode nested = nullptr;
  std::size_t count = 1;
  ASSERT_EQ(::cuGraphGetNodes(child_of(outer), &nested, &count), CUDA_SUCCESS);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(fake::run_order(exec), "C(C(KKWK))");
  EXPECT_EQ(::cuGraphExecChildGraphNodeSetParams(exec, nested, chain(3)), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(exec), "C(C(KKWK))");
}

TEST_F(GraphBook, ExecutablesOfOneGraphEndInAnyOrder) {
  attach("device:2");
  CUgraph graph = chain(3);
  const CUgraphExec first = instantiate(graph);
  set_policy("device:1");
  const CUgraphExec second = instantiate(graph);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphExecDestroy(first), CUDA_SUCCESS);
  EXPECT_EQ(update(second, chain(3)), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(second), "KWKWK");
}

// A destroy that fails destroys nothing.
TEST_F(GraphBook, AnExecutableThatCouldNotBeDestroyedIsUpdated) {
  attach("device:2");
  const CUgraphExec exec = instantiate(chain(3));
  fake::answer(Id::cuGraphExecDestroy, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(update(exec, chain(3)), CUDA_SUCCESS);
}

// The driver gives its handle to another executable, perhaps one that has no waits.
TEST_F(GraphBook, AnExecutableThatIsDestroyedIsForgotten) {
  attach("device:2");
  const CUgraphExec exec = instantiate(chain(3));
  ASSERT_EQ(::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  fake::clear();
  update(exec, chain(3));
  EXPECT_EQ(fake::count(Id::cuGraphAddBatchMemOpNode), 0U);
}

TEST_F(GraphBook, NoWaitCutsAProgrammaticEdge) {
  attach("device:1");
  CUgraph graph = new_graph();
  const CUgraphNode first = add_kernel(graph, {});
  const CUgraphNode second = add_programmatic(graph, first);
  add_kernel(graph, {second});
  EXPECT_EQ(fake::run_order(instantiate(graph)), "KKWK");
}

// The bodies of conditional nodes hold no waits, so the graph is reported with its duration.
TEST_F(GraphBook, AConditionalNodeHasAWaitInFront) {
  attach("device:8");
  outrank();
  CUgraph graph = new_graph();
  const CUgraphNode first = add_kernel(graph, {});
  const auto [node, body] = add_conditional(graph, {first});
  for (int i = 0; i < 20; ++i) add_kernel(body, {});
  add_kernel(graph, {node});
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(fake::run_order(exec), "KWI(KKKKKKKKKKKKKKKKKKKK)WK");
  set_policy("device:200us");
  learn_graph(exec, 3.0F);
  EXPECT_EQ(slot().ungated_graph_ns.load(), 3'000'000U);
}

TEST_F(GraphBook, AGraphWithWaitsIsNotReportedAsUngated) {
  attach("device:200us");
  outrank();
  const CUgraphExec exec = instantiate(chain(20));
  EXPECT_EQ(fake::run_order(exec), "KKKKKKKKWKKKKKKKKWKKKK");
  learn_graph(exec, 3.0F);
  EXPECT_EQ(slot().ungated_graph_ns.load(), 0U);
}

// Waits that nobody needs must not slow a critical job; status tells whoever needs them.
TEST_F(GraphBook, OfAClientWhomNobodyOutranksHoldNone) {
  attach("device:200us", 5);
  const CUgraphExec exec = instantiate(chain(20));
  EXPECT_EQ(fake::run_order(exec), "KKKKKKKKKKKKKKKKKKKK");
  Critical above(session_, 9);
  ASSERT_TRUE(eventually([this] { return slot().outranked.load() != 0; }));
  learn_graph(exec, 3.0F);
  EXPECT_EQ(slot().ungated_graph_ns.load(), 3'000'000U);
  EXPECT_EQ(fake::run_order(instantiate(chain(20))), "KKKKKKKKWKKKKKKKKWKKKK");
}

// The durations of kernels that were launched outside a graph are known.
TEST_F(GraphBook, WaitsAreSpacedByLearnedTime) {
  constexpr std::uintptr_t kShort = 1;
  constexpr std::uintptr_t kLong = 2;
  attach("device:200us");
  outrank();
  learn(kShort, 0.05F);
  learn(kLong, 0.5F);
  CUgraph graph = new_graph();
  Nodes before;
  for (const std::uintptr_t function : {1, 1, 1, 1, 1, 1, 2, 4, 1, 1}) {
    before = {add_kernel(graph, before, function)};
  }
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(fake::run_order(exec), "KKKKWKKWKWKKK");
  // The long one waits for slack too.
  EXPECT_EQ(fake::slack_waits(exec), std::vector<std::uint64_t>{500'000});
  EXPECT_EQ(update(exec, chain(10)), CUDA_SUCCESS);
}

// Prevents: a program with many graphs has a wait in front of every launch of a new kernel, because
// the graphs have filled the tables of durations.
TEST_F(GraphBook, ManyGraphsTakeNoPlaceOfKernels) {
  attach("device:200us");
  outrank();
  CUgraph graph = new_graph();
  for (int i = 0; i < 10'000; ++i) instantiate(graph);
  learn(3, 0.01F);
}

// Prevents: the kernels of graphs that nobody launches fill them.
TEST_F(GraphBook, KernelsOfGraphsTakeNoPlaceOfKernels) {
  attach("device:200us");
  outrank();
  std::uintptr_t function = kUnseen;
  for (int graphs = 0; graphs < 100; ++graphs) {
    CUgraph graph = new_graph();
    Nodes before;
    for (int i = 0; i < 100; ++i) before = {add_kernel(graph, before, ++function)};
    instantiate(graph);
  }
  learn(3, 0.01F);
}

// Prevents: the duration of a graph that has ended counts for one with its handle.
TEST_F(GraphBook, TheDurationOfAGraphEndsWithIt) {
  attach("device:200us");
  outrank();
  const CUgraphExec exec = instantiate(chain(20));
  learn_graph(exec, 3.0F);
  const std::uint64_t unknown = slot().unknown_launches.load();
  ::cuGraphLaunch(exec, nullptr);
  EXPECT_EQ(slot().unknown_launches.load(), unknown);
  fake::pause();  // no sample comes to its end
  ASSERT_EQ(::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  ::cuGraphLaunch(exec, nullptr);
  EXPECT_EQ(slot().unknown_launches.load(), unknown + 1);
}

// A graph whose kernels were never launched by themselves gets many waits at first. Once the
// duration of the graph is known, the next graph of the same code gets fewer. Seen to fail, with a
// wait for every eighth kernel each time, without GraphEstimates::learn().
TEST_F(GraphBook, TheSameCodeGetsFewerWaitsOnceItsDurationIsKnown) {
  attach("device:200us");
  outrank();
  const CUgraphExec cold = instantiate(chain(40, 7));
  EXPECT_EQ(fake::run_order(cold), "KKKKKKKKWKKKKKKKKWKKKKKKKKWKKKKKKKKWKKKKKKKK");
  learn_graph(cold, 0.1F);
  EXPECT_EQ(fake::run_order(instantiate(chain(40, 7))), std::string(40, 'K'));
  EXPECT_EQ(update(cold, chain(40, 7)), CUDA_SUCCESS) << "the first keeps its own";
  const CUgraphExec other = instantiate(chain(4, 8, 200, 2048));
  EXPECT_EQ(fake::run_order(other), "KWKWKWK") << "each fills the GPU";
  learn_graph(other, 0.3F);
  ASSERT_EQ(::cuGraphExecDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(fake::run_order(instantiate(chain(4, 8, 200, 2048))), "KKWKK");
}

}  // namespace
}  // namespace sluice::intercept::test
