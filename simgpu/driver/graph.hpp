// Graphs as the application sees them. Graphs::mutex guards everything here.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/handles.hpp"

namespace sluice::simgpu {

struct Capture;
struct Graph;
struct Node;
struct Stream;

// An edge, seen from one of its ends.
struct Link {
  Node* node = nullptr;
  CUgraphEdgeData data{};
};

// The work of a node.
struct NodeContent {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<Work> works;
  std::vector<CUstreamBatchMemOpParams> operations;  // the application's form of `works`
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};  // for kernel nodes; the argument pointers are null
  std::shared_ptr<Graph> child;         // for child graph nodes
  bool programmatic = false;            // an edge from a preceding kernel becomes programmatic
};

struct Node {
  NodeContent content;
  CUgraphNode handle = nullptr;
  CUgraphNode original = nullptr;  // the node in the graph that was cloned
  Graph* graph = nullptr;
  std::vector<Link> dependencies;
  std::vector<Link> dependents;
};

using NodeTable = HandleTable<CUgraphNode, Node>;

struct Graph {
  explicit Graph(NodeTable& table) : node_table(table) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  Node& add(NodeContent content, const std::vector<Link>& dependencies);
  void remove(Node& node);
  // Returns false if the edge already exists.
  static bool connect(Node& from, Node& to, const CUgraphEdgeData& data);
  static bool disconnect(Node& from, Node& to);

  // The nodes in an order that the edges allow; the same order for equal graphs. Contains fewer
  // than all nodes if there is a cycle.
  [[nodiscard]] std::vector<const Node*> order() const;
  [[nodiscard]] std::shared_ptr<Graph> clone() const;

  NodeTable& node_table;  // of all graphs
  CUgraph handle = nullptr;
  std::vector<std::shared_ptr<Node>> nodes;
};

// An executable graph, uploaded to the GPU process.
struct GraphExec {
  std::shared_ptr<Graph> graph;  // a clone
  std::uint64_t number = 0;      // number of the upload
  std::uint64_t flags = 0;
  std::vector<std::pair<std::shared_ptr<Stream>, std::uint64_t>>
      launches;  // the last launch on each stream
};

struct Graphs {
  std::mutex mutex;
  HandleTable<CUgraph, Graph> graphs{0x56};
  NodeTable nodes{0x57};
  HandleTable<CUgraphExec, GraphExec> execs{0x58};
  std::vector<std::shared_ptr<GraphExec>> ended;  // destroyed, but a launch may still be queued
  std::vector<std::shared_ptr<Capture>> captures;
  std::atomic<std::size_t> open_captures = 0;  // number of `captures`, to be read without the mutex
};

inline constexpr CUgraphEdgeData kPlainEdge{};

// Whether the calls without edge data can represent the edge.
inline bool is_plain(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

// Finds the nodes behind handles. Returns false if one is not in `graph`.
bool find_nodes(const Graph& graph, const CUgraphNode* handles, const CUgraphEdgeData* data,
                std::size_t count, std::vector<Link>& links);

}  // namespace sluice::simgpu
