#include "simgpu/driver/graph.hpp"

#include <algorithm>

namespace sluice::simgpu {
namespace {

auto link_to(std::vector<Link>& links, const Node& node) {
  return std::find_if(links.begin(), links.end(),
                      [&](const Link& link) { return link.node == &node; });
}

}  // namespace

Graph::~Graph() {
  for (const auto& node : nodes) node_table.take(node->handle);
}

Node& Graph::add(NodeContent content, const std::vector<Link>& dependencies) {
  auto node = std::make_shared<Node>();
  node->content = std::move(content);
  node->graph = this;
  node->handle = node_table.add(node);
  nodes.push_back(node);
  for (const Link& link : dependencies) connect(*link.node, *node, link.data);
  return *node;
}

void Graph::remove(Node& node) {
  for (const Link& link : std::vector<Link>(node.dependencies)) disconnect(*link.node, node);
  for (const Link& link : std::vector<Link>(node.dependents)) disconnect(node, *link.node);
  node_table.take(node.handle);
  std::erase_if(nodes, [&](const auto& other) { return other.get() == &node; });
}

bool Graph::connect(Node& from, Node& to, const CUgraphEdgeData& data) {
  if (link_to(from.dependents, to) != from.dependents.end()) return false;
  from.dependents.push_back({&to, data});
  to.dependencies.push_back({&from, data});
  return true;
}

bool Graph::disconnect(Node& from, Node& to) {
  const auto forward = link_to(from.dependents, to);
  if (forward == from.dependents.end()) return false;
  from.dependents.erase(forward);
  to.dependencies.erase(link_to(to.dependencies, from));
  return true;
}

std::vector<const Node*> Graph::order() const {
  std::map<const Node*, std::size_t> missing;
  std::vector<const Node*> ordered;
  for (const auto& node : nodes) {
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ordered.push_back(node.get());
  }
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    for (const Link& link : ordered[i]->dependents) {
      if (--missing[link.node] == 0) ordered.push_back(link.node);
    }
  }
  return ordered;
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>(node_table);
  std::map<const Node*, Node*> copies;
  for (const auto& node : nodes) {
    Node& added = copy->add(node->content, {});
    added.original = node->handle;
    copies[node.get()] = &added;
  }
  for (const auto& node : nodes) {
    for (const Link& link : node->dependencies) {
      connect(*copies[link.node], *copies[node.get()], link.data);
    }
  }
  return copy;
}

bool find_nodes(const Graph& graph, const CUgraphNode* handles, const CUgraphEdgeData* data,
                std::size_t count, std::vector<Link>& links) {
  if (count != 0 && handles == nullptr) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::shared_ptr<Node> node = graph.node_table.find(handles[i]);
    if (!node || node->graph != &graph) return false;
    links.push_back({node.get(), data != nullptr ? data[i] : kPlainEdge});
  }
  return true;
}

}  // namespace sluice::simgpu
