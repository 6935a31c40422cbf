// Graphs as the application sees them. Everything here is guarded by Graphs::mutex.
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

// An edge as seen from one of its ends.
struct Link {
  Node* node = nullptr;
  CUgraphEdgeData data{};
};

// What a node does.
struct NodeContent {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<Work> works;
  std::vector<CUstreamBatchMemOpParams> operations;  // what works are, to one who asked
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};  // of kernel nodes; the argument pointers are null
  std::shared_ptr<Graph> child;         // of child graph nodes
  bool programmatic = false;  // its edge from a kernel in front of it is a programmatic one
};

struct Node {
  NodeContent content;
  CUgraphNode handle = nullptr;
  CUgraphNode original = nullptr;  // in the graph this one was cloned from
  Graph* graph = nullptr;
  std::vector<Link> dependencies;
  std::vector<Link> dependents;
};

struct Graph {
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  Node& add(NodeContent content, const std::vector<Link>& dependencies);
  void remove(Node& node);
  // False when the edge is there already.
  static bool connect(Node& from, Node& to, const CUgraphEdgeData& data);
  static bool disconnect(Node& from, Node& to);

  // The nodes in an order that the edges allow, the same for equal graphs; fewer than all when
  // there is a cycle.
  [[nodiscard]] std::vector<const Node*> order() const;
  [[nodiscard]] std::shared_ptr<Graph> clone() const;

  CUgraph handle = nullptr;
  std::vector<std::shared_ptr<Node>> nodes;
};

// A graph made executable, and uploaded to the GPU process.
struct GraphExec {
  std::shared_ptr<Graph> graph;  // a clone
  std::uint64_t number = 0;      // of the upload
  std::uint64_t flags = 0;
  std::vector<std::pair<std::shared_ptr<Stream>, std::uint64_t>> launches;  // last of each stream
};

struct Graphs {
  std::mutex mutex;
  HandleTable<CUgraph, Graph> graphs{0x56};
  HandleTable<CUgraphNode, Node> nodes{0x57};
  HandleTable<CUgraphExec, GraphExec> execs{0x58};
  std::vector<std::shared_ptr<GraphExec>> ended;  // destroyed, perhaps still queued somewhere
  std::vector<std::shared_ptr<Capture>> captures;
  std::atomic<std::size_t> open_captures = 0;  // their number, for calls that never meet one
};

inline constexpr CUgraphEdgeData kPlainEdge{};

// True when the edge carries something the calls without edge data cannot tell.
inline bool is_plain(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

// The nodes behind handles, all in `graph`; false when one is not.
bool find_nodes(const Graph& graph, const CUgraphNode* handles, const CUgraphEdgeData* data,
                std::size_t count, std::vector<Link>& links);

}  // namespace sluice::simgpu
