// Nodes, edges, clones, instances and updates of a graph.
#include <string>
#include <vector>

#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {

void graph_rules() {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  *gate = 0;
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
  CUstreamBatchMemOpParams two[2] = {};
  for (auto& one : two) {
    one.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    one.waitValue.address = gate_address;
    one.waitValue.value64 = 0;
    one.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  say("graph: batch of two in a capture", cuStreamBatchMemOp(stream, 2, two, 0));
  launch(stream);
  say("graph: end", cuStreamEndCapture(stream, &graph));
  std::size_t count = 0;
  cuGraphGetNodes(graph, nullptr, &count);
  say("graph: nodes", static_cast<long>(count));
  std::vector<CUgraphNode> nodes(count);
  cuGraphGetNodes(graph, nodes.data(), &count);
  for (std::size_t i = 0; i < count; ++i) {
    CUgraphNodeType type;
    cuGraphNodeGetType(nodes[i], &type);
    say("graph: type of node " + std::to_string(i), type);
  }
  say("graph: instantiate for device launch",
      cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  say("graph: the same with parameters", cuGraphInstantiateWithParams(&exec, graph, &parameters));
  say("graph: its result", parameters.result_out);
  say("graph: its error node is set", parameters.hErrNode_out != nullptr);
  say("graph: bad flags", cuGraphInstantiate(&exec, graph, 64));
  CUgraph clone = nullptr;
  CUgraphNode in_clone = nullptr;
  say("graph: clone", cuGraphClone(&clone, graph));
  say("graph: find in clone", cuGraphNodeFindInClone(&in_clone, nodes[1], clone));
  CUgraphNode edge_from[8];
  CUgraphNode edge_to[8];
  std::size_t edges = 8;
  say("graph: edges of clone", cuGraphGetEdges(clone, edge_from, edge_to, nullptr, &edges));
  say("graph: their number", static_cast<long>(edges));
  say("graph: destroy node", cuGraphDestroyNode(in_clone));
  say("graph: find the destroyed node", cuGraphNodeFindInClone(&in_clone, nodes[1], clone));
  edges = 8;
  cuGraphGetEdges(clone, edge_from, edge_to, nullptr, &edges);
  say("graph: edges left", static_cast<long>(edges));
  say("graph: instantiate", cuGraphInstantiate(&exec, graph, 0));
  CUgraphExecUpdateResultInfo info{};
  say("graph: update from the clone without a node", cuGraphExecUpdate(exec, clone, &info));
  say("graph: its result", info.result);
  say("graph: update from the same graph", cuGraphExecUpdate(exec, graph, &info));
  say("graph: add an edge that exists",
      cuGraphAddDependencies(graph, &nodes[0], &nodes[1], nullptr, 1));
  say("graph: add an edge to itself",
      cuGraphAddDependencies(graph, &nodes[0], &nodes[0], nullptr, 1));
  say("graph: launch", cuGraphLaunch(exec, stream));
  say("graph: launch on legacy", cuGraphLaunch(exec, nullptr));
  say("graph: destroy exec while queued", cuGraphExecDestroy(exec));
  say("graph: synchronise", cuCtxSynchronize());
  cuGraphDestroy(clone);
  cuGraphDestroy(graph);
}

}  // namespace sluice::simgpu::probe
