#include "intercept/pacing/wait_nodes.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "intercept/client/client.hpp"
#include "intercept/client/interposer.hpp"

namespace sluice::intercept {

namespace {

struct Known {
  std::mutex mutex;
  std::unordered_set<CUgraphExec> bare;
  /// A node that is gone stays, until its handle is that of another conditional one.
  std::unordered_map<CUgraphNode, std::vector<CUgraph>> bodies;
};

/// Never destroyed: graphs may be made and updated by the program's own exit handlers.
Known& known() noexcept {
  static Known& instance = *std::make_unique<Known>().release();
  return instance;
}

/// What one of the driver's list queries, of a node or a graph, gives.
template <class Get, class Of>
std::vector<CUgraphNode> listed(Get get, Of of) {
  std::size_t count = 0;
  if (get == nullptr || get(of, nullptr, &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && get(of, nodes.data(), &count) != CUDA_SUCCESS) nodes.clear();
  return nodes;
}

bool is_ours(CUgraphNode node) noexcept {
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  if (driver().cuGraphBatchMemOpNodeGetParams == nullptr ||
      driver().cuGraphBatchMemOpNodeGetParams(node, &params) != CUDA_SUCCESS || params.count != 1 ||
      params.paramArray == nullptr) {
    return false;
  }
  const CUstreamBatchMemOpParams& operation = params.paramArray[0];
  if (operation.operation != CU_STREAM_MEM_OP_WAIT_VALUE_64) return false;
  bool ours = false;
  Interposer::instance().clients().for_each([&](Client& client) {
    ours = ours || client.memory().waits_at(operation.waitValue.address);
  });
  return ours;
}

bool bypass(CUgraph graph, CUgraphNode node) {
  const auto before = listed(driver().cuGraphNodeGetDependencies, node);
  const auto behind = listed(driver().cuGraphNodeGetDependentNodes, node);
  if (driver().cuGraphDestroyNode(node) != CUDA_SUCCESS) return false;
  for (const CUgraphNode from : before) {
    for (const CUgraphNode to : behind) driver().cuGraphAddDependencies(graph, &from, &to, 1);
  }
  return true;
}

/// The graphs inside a node.
std::vector<CUgraph> inside(CUgraphNode node, CUgraphNodeType type) {
  CUgraph child = nullptr;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH && driver().cuGraphChildGraphNodeGetGraph != nullptr &&
      driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
    return {child};
  }
  if (type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return {};
  const std::lock_guard lock(known().mutex);
  const auto found = known().bodies.find(node);
  return found == known().bodies.end() ? std::vector<CUgraph>{} : found->second;
}

}  // namespace

bool take_wait_nodes_out(CUgraph graph) noexcept {
  if (in_forked_child() || graph == nullptr || driver().cuGraphNodeGetType == nullptr) return false;
  bool any = false;
  for (const CUgraphNode node : listed(driver().cuGraphGetNodes, graph)) {
    CUgraphNodeType type{};
    if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    for (CUgraph each : inside(node, type)) any = take_wait_nodes_out(each) || any;
    if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && is_ours(node)) any = bypass(graph, node) || any;
  }
  return any;
}

void note_bodies(CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS& params) noexcept {
  if (in_forked_child() || params.phGraph_out == nullptr) return;
  const std::lock_guard lock(known().mutex);
  known().bodies[node].assign(params.phGraph_out, params.phGraph_out + params.size);
}

void note_ungated(CUgraphExec exec, bool bare) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard lock(known().mutex);
  if (bare) {
    known().bare.insert(exec);
  } else {
    known().bare.erase(exec);
  }
}

bool is_ungated(CUgraphExec exec) noexcept {
  if (in_forked_child()) return false;
  const std::lock_guard lock(known().mutex);
  return known().bare.contains(exec);
}

}  // namespace sluice::intercept
