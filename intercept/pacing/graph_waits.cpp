#include "intercept/pacing/graph_waits.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <unordered_map>
#include <utility>

#include "intercept/driver/driver.hpp"

namespace sluice::intercept {
namespace {

using NodeKind = GraphShape::Kind;

struct Dependencies {
  std::vector<CUgraphNode> nodes;
  bool plain = true;  ///< Whether no edge has data, as programmatic edges do.
};

std::optional<Dependencies> dependencies_of(CUgraphNode node) {
  const Driver& calls = driver();
  const auto ask = [&](CUgraphNode* nodes, CUgraphEdgeData* edges, std::size_t* count) {
    return calls.cuGraphNodeGetDependencies_v2 != nullptr
               ? calls.cuGraphNodeGetDependencies_v2(node, nodes, edges, count)
               : calls.cuGraphNodeGetDependencies(node, nodes, count);
  };
  std::size_t count = 0;
  if (ask(nullptr, nullptr, &count) != CUDA_SUCCESS) return std::nullopt;
  Dependencies found{std::vector<CUgraphNode>(count)};
  std::vector<CUgraphEdgeData> edges(count);
  if (count != 0 && ask(found.nodes.data(), edges.data(), &count) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  found.plain = std::all_of(edges.begin(), edges.end(), [](const CUgraphEdgeData& edge) {
    return edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
  });
  return found;
}

std::optional<std::vector<CUgraphNode>> nodes_of(CUgraph graph) {
  std::size_t count = 0;
  if (driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return std::nullopt;
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && driver().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return nodes;
}

void describe_kernel(GraphShape::Node& node) {
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  if (driver().cuGraphKernelNodeGetParams_v2 == nullptr ||
      driver().cuGraphKernelNodeGetParams_v2(node.handle, &params) != CUDA_SUCCESS) {
    return;
  }
  node.context = params.ctx;
  Work& work = node.work;
  // A program that launches a CUkernel passes it as a function, so the same key is used here.
  work.function = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  work.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  work.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  work.shared_bytes = params.sharedMemBytes;
}

/// Fills in the kind of the node. False if the graph could not be changed back, or if the driver
/// does not answer.
bool describe(GraphShape::Node& node) {
  CUgraphNodeType type{};
  if (driver().cuGraphNodeGetType(node.handle, &type) != CUDA_SUCCESS) return false;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      node.kind = NodeKind::kKernel;
      describe_kernel(node);
      return true;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      node.kind = NodeKind::kConditional;
      return true;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      node.kind = NodeKind::kChild;
      CUgraph child = nullptr;
      if (driver().cuGraphChildGraphNodeGetGraph(node.handle, &child) != CUDA_SUCCESS) return false;
      std::optional<GraphShape> inside = read_shape(child);
      if (!inside) return false;
      node.child = std::make_unique<GraphShape>(std::move(*inside));
      return true;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return false;
    default:
      return true;
  }
}

/// A depth-first order along the edges, from the last nodes: the origin of every edge comes before
/// its target. Nothing if the graph has a cycle, which the driver will refuse.
std::optional<std::vector<std::size_t>> order_of(
    const std::vector<std::vector<std::size_t>>& before) {
  enum class State : std::uint8_t { kNew, kOpen, kDone };
  std::vector<bool> is_last(before.size(), true);
  for (const auto& each : before) {
    for (const std::size_t node : each) is_last[node] = false;
  }
  std::vector<State> states(before.size(), State::kNew);
  std::vector<std::size_t> order;
  std::vector<std::pair<std::size_t, std::size_t>> path;  // a node, and how many edges were taken
  for (std::size_t last = 0; last < before.size(); ++last) {
    if (is_last[last]) path.emplace_back(last, 0);
    while (!path.empty()) {
      auto& [node, taken] = path.back();
      states[node] = State::kOpen;
      if (taken == before[node].size()) {
        states[node] = State::kDone;
        order.push_back(node);
        path.pop_back();
        continue;
      }
      const std::size_t next = before[node][taken++];
      if (states[next] == State::kOpen) return std::nullopt;
      if (states[next] == State::kNew) path.emplace_back(next, 0);
    }
  }
  if (order.size() != before.size()) return std::nullopt;
  return order;
}

/// Whether the node is a batch of memory operations that ends in a wait for one of the gates.
bool waits_at(CUgraphNode node, const std::vector<CUdeviceptr>& gates) {
  CUgraphNodeType type{};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  if (driver().cuGraphBatchMemOpNodeGetParams == nullptr ||
      driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS ||
      type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
      driver().cuGraphBatchMemOpNodeGetParams(node, &params) != CUDA_SUCCESS || params.count == 0) {
    return false;
  }
  const CUstreamBatchMemOpParams& last = params.paramArray[params.count - 1];
  return last.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 &&
         std::find(gates.begin(), gates.end(), last.waitValue.address) != gates.end();
}

bool can_edit_graphs() noexcept {
  const Driver& calls = driver();
  return calls.cuGraphAddBatchMemOpNode != nullptr && calls.cuGraphRemoveDependencies != nullptr &&
         calls.cuGraphAddDependencies != nullptr && calls.cuGraphDestroyNode != nullptr &&
         calls.cuGraphNodeGetDependencies != nullptr && calls.cuGraphGetNodes != nullptr &&
         calls.cuGraphNodeGetType != nullptr && calls.cuGraphChildGraphNodeGetGraph != nullptr;
}

}  // namespace

std::optional<GraphShape> read_shape(CUgraph graph) {
  if (!can_edit_graphs()) return std::nullopt;
  const std::optional<std::vector<CUgraphNode>> handles = nodes_of(graph);
  if (!handles) return std::nullopt;
  std::unordered_map<CUgraphNode, std::size_t> index;
  for (const CUgraphNode handle : *handles) index.emplace(handle, index.size());
  std::vector<std::vector<std::size_t>> before(handles->size());
  std::vector<bool> plain(handles->size());
  for (std::size_t i = 0; i < handles->size(); ++i) {
    const std::optional<Dependencies> found = dependencies_of((*handles)[i]);
    if (!found) return std::nullopt;
    plain[i] = found->plain;
    for (const CUgraphNode node : found->nodes) {
      const auto known = index.find(node);
      if (known == index.end()) return std::nullopt;
      before[i].push_back(known->second);
    }
  }
  const std::optional<std::vector<std::size_t>> order = order_of(before);
  if (!order) return std::nullopt;
  std::vector<std::size_t> place(order->size());
  for (std::size_t i = 0; i < order->size(); ++i) place[(*order)[i]] = i;
  GraphShape shape;
  shape.graph = graph;
  for (const std::size_t i : *order) {
    GraphShape::Node& node = shape.nodes.emplace_back();
    node.handle = (*handles)[i];
    node.may_wait = plain[i];
    for (const std::size_t each : before[i]) node.before.push_back(place[each]);
    if (!describe(node)) return std::nullopt;
  }
  return shape;
}

bool GraphWaits::put_in(const GraphShape& shape, const WaitPattern& pattern,
                        const std::vector<GateWords>& gates) {
  if (put_all(shape, pattern, gates)) return true;
  take_out();
  return false;
}

bool GraphWaits::put_all(const GraphShape& shape, const WaitPattern& pattern,
                         const std::vector<GateWords>& gates) {
  if (shape.nodes.size() != pattern.nodes) return false;
  for (const WaitPattern::Wait& wait : pattern.waits) {
    if (!place(shape, wait, gates[wait.gate])) return false;
  }
  return std::all_of(pattern.children.begin(), pattern.children.end(),
                     [&](const WaitPattern::Child& child) {
                       const GraphShape::Node& node = shape.nodes[child.node];
                       return node.child != nullptr && put_all(*node.child, child.pattern, gates);
                     });
}

bool GraphWaits::place(const GraphShape& shape, const WaitPattern::Wait& wait,
                       const GateWords& words) {
  const GraphShape::Node& node = shape.nodes[wait.node];
  const bool fits = node.kind != NodeKind::kOther;
  if (!fits || !node.may_wait) return false;
  // As in a stream, the gate is read last: it closes before the slack becomes sufficient again.
  std::array<CUstreamBatchMemOpParams, 2> operations{};
  operations[0].waitValue = {};
  operations[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  operations[1] = operations[0];
  operations[0].waitValue.address = words.slack;
  operations[0].waitValue.value64 = wait.slack_ns;
  operations[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  operations[1].waitValue.address = words.gate;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  params.ctx = words.context;
  params.count = wait.slack_ns != 0 ? 2 : 1;
  params.paramArray = wait.slack_ns != 0 ? operations.data() : &operations[1];

  Placed placed{shape.graph, nullptr, node.handle, {}};
  for (const std::size_t before : node.before) placed.before.push_back(shape.nodes[before].handle);
  const std::size_t count = placed.before.size();
  const std::vector<CUgraphNode> to(count, placed.node);
  placed_.reserve(placed_.size() + 1);
  if (driver().cuGraphAddBatchMemOpNode(&placed.wait, shape.graph, placed.before.data(), count,
                                        &params) != CUDA_SUCCESS) {
    return false;
  }
  placed_.push_back(std::move(placed));
  // Add the new path before the old edges are removed.
  const Placed& in = placed_.back();
  return driver().cuGraphAddDependencies(shape.graph, &in.wait, &in.node, 1) == CUDA_SUCCESS &&
         (count == 0 || driver().cuGraphRemoveDependencies(shape.graph, in.before.data(), to.data(),
                                                           count) == CUDA_SUCCESS);
}

/// Restores the edges before it removes the wait. If something cannot be restored, the graph has a
/// wait too many, but never an edge too few.
void GraphWaits::restore(const Placed& placed) noexcept {
  bool whole = true;
  for (const CUgraphNode from : placed.before) {
    whole = driver().cuGraphAddDependencies(placed.graph, &from, &placed.node, 1) == CUDA_SUCCESS &&
            whole;
  }
  if (!whole) {  // adding fails for an edge that was never removed
    try {
      const std::optional<Dependencies> now = dependencies_of(placed.node);
      whole = now && std::all_of(placed.before.begin(), placed.before.end(), [&](CUgraphNode from) {
                return std::find(now->nodes.begin(), now->nodes.end(), from) != now->nodes.end();
              });
    } catch (const std::bad_alloc&) {
      whole = false;
    }
  }
  if (whole) driver().cuGraphDestroyNode(placed.wait);
}

void GraphWaits::take_out_copies(const GraphShape& copy, const std::vector<CUdeviceptr>& gates) {
  for (const GraphShape::Node& node : copy.nodes) {
    if (node.child != nullptr) take_out_copies(*node.child, gates);
    if (node.before.size() != 1) continue;
    const GraphShape::Node& front = copy.nodes[node.before.front()];
    if (!waits_at(front.handle, gates)) continue;
    Placed placed{copy.graph, front.handle, node.handle, {}};
    for (const std::size_t before : front.before) {
      placed.before.push_back(copy.nodes[before].handle);
    }
    restore(placed);
  }
}

void GraphWaits::take_out() noexcept {
  for (; !placed_.empty(); placed_.pop_back()) restore(placed_.back());
}

CUgraphNode GraphWaits::program_node(CUgraphNode node) const noexcept {
  const auto found = std::find_if(placed_.begin(), placed_.end(),
                                  [node](const Placed& placed) { return placed.wait == node; });
  return found == placed_.end() ? node : found->node;
}

}  // namespace sluice::intercept
