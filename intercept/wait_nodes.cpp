#include "intercept/wait_nodes.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "intercept/client.hpp"
#include "intercept/process.hpp"

namespace sluice::intercept {

namespace {

struct Bare {
  std::mutex mutex;
  std::unordered_set<CUgraphExec> executables;
};

/// Never destroyed: graphs may be made and updated by the program's own exit handlers.
Bare& bare_ones() noexcept {
  static Bare& instance = *std::make_unique<Bare>().release();
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
  Process::instance().for_each_client(
      [&](Client& client) { ours = ours || client.pacer().waits_at(operation.waitValue.address); });
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

CUgraph child_of(CUgraphNode node) noexcept {
  CUgraph child = nullptr;
  if (driver().cuGraphChildGraphNodeGetGraph != nullptr) {
    driver().cuGraphChildGraphNodeGetGraph(node, &child);
  }
  return child;
}

}  // namespace

bool take_wait_nodes_out(CUgraph graph) noexcept {
  if (in_forked_child() || graph == nullptr || driver().cuGraphNodeGetType == nullptr) return false;
  bool any = false;
  for (const CUgraphNode node : listed(driver().cuGraphGetNodes, graph)) {
    CUgraphNodeType type{};
    if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) any = take_wait_nodes_out(child_of(node)) || any;
    if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && is_ours(node)) any = bypass(graph, node) || any;
  }
  return any;
}

void note_bare(CUgraphExec exec, bool bare) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard lock(bare_ones().mutex);
  if (bare) {
    bare_ones().executables.insert(exec);
  } else {
    bare_ones().executables.erase(exec);
  }
}

bool is_bare(CUgraphExec exec) noexcept {
  if (in_forked_child()) return false;
  const std::lock_guard lock(bare_ones().mutex);
  return bare_ones().executables.contains(exec);
}

}  // namespace sluice::intercept
