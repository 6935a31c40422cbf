#include "engine/torch/script_weights.hpp"

#include <unordered_set>

namespace sluice::engine {
namespace {

using torch::jit::Node;

bool is_tensor_constant(const Node& node) {
  using torch::jit::attr::value;
  return node.kind() == c10::prim::Constant && node.hasAttribute(value) &&
         node.kindOf(value) == torch::jit::AttributeKind::t;
}

class Finder {
 public:
  /// Notes what a top-level node uses, and what the nodes inside of it are and use.
  void note(Node* node, std::size_t place) {
    if (is_tensor_constant(*node) && seen_.insert(node).second) found_.push_back({node, place});
    for (torch::jit::Value* input : node->inputs()) {
      if (is_tensor_constant(*input->node())) note(input->node(), place);
    }
    for (torch::jit::Block* body : node->blocks()) {
      for (Node* inner : body->nodes()) note(inner, place);
      for (torch::jit::Value* output : body->outputs()) {
        if (is_tensor_constant(*output->node())) note(output->node(), place);
      }
    }
  }
  [[nodiscard]] std::vector<GraphConstant> take() { return std::move(found_); }

 private:
  std::unordered_set<Node*> seen_;
  std::vector<GraphConstant> found_;
};

}  // namespace

at::Tensor GraphConstant::tensor() const { return node->t(torch::jit::attr::value); }

void GraphConstant::replace(const at::Tensor& tensor) const {
  node->t_(torch::jit::attr::value, tensor);
}

std::vector<GraphConstant> tensor_constants(const std::vector<Node*>& nodes) {
  Finder finder;
  for (std::size_t i = 0; i < nodes.size(); ++i) finder.note(nodes[i], i);
  return finder.take();
}

void replace_constants(torch::jit::Block& graph,
                       const std::function<at::Tensor(const at::Tensor&)>& replacement) {
  for (Node* node : graph.nodes()) {
    for (torch::jit::Block* body : node->blocks()) replace_constants(*body, replacement);
    if (!is_tensor_constant(*node)) continue;
    const at::Tensor replaced = replacement(node->t(torch::jit::attr::value));
    if (replaced.defined()) node->t_(torch::jit::attr::value, replaced);
  }
}

}  // namespace sluice::engine
