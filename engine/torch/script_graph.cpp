#include "engine/torch/script_graph.hpp"

#include <fmt/format.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.hpp"
#include "engine/torch/embedding_rows.hpp"

namespace sluice::engine {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

bool is_constant(const Node& node) { return node.kind() == c10::prim::Constant; }

/// Calls `visit` for every value that the node uses, also inside its branches and loops.
template <class Visit>
void for_each_use(const Node& node, const Visit& visit) {
  for (const Value* input : node.inputs()) visit(input);
  for (const torch::jit::Block* body : node.blocks()) {
    for (const Node* inner : body->nodes()) for_each_use(*inner, visit);
    for (const Value* output : body->outputs()) visit(output);
  }
}

bool made_of_tensors(const c10::Type& type) {
  if (const auto* list = type.castRaw<c10::ListType>()) {
    return made_of_tensors(*list->getElementType());
  }
  return type.kind() == c10::TypeKind::TensorType;
}

/// Copies nodes of a graph into a new graph, with the constants that they use.
class BlockBuilder {
 public:
  void add_input(const Value* value) {
    copies_[value] = graph_->addInput()->copyMetadata(const_cast<Value*>(value));
  }
  void add_output(const Value* value) {
    copy_constant(value);
    graph_->registerOutput(copies_.at(value));
  }
  void add(Node* node) {
    for_each_use(*node, [this](const Value* used) { copy_constant(used); });
    append(node);
  }
  [[nodiscard]] std::shared_ptr<Graph> graph() const { return graph_; }

 private:
  void copy_constant(const Value* value) {
    if (is_constant(*value->node()) && !copies_.contains(value)) {
      append(const_cast<Node*>(value->node()));
    }
  }
  void append(Node* node) {
    Node* copy = graph_->appendNode(
        graph_->createClone(node, [this](Value* value) { return copies_.at(value); }));
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      copies_[node->outputs()[i]] = copy->outputs()[i];
    }
  }

  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::unordered_map<const Value*, Value*> copies_;
};

}  // namespace

ScriptGraph::ScriptGraph(const std::string& file, const c10::Device& device) : file_(file) {
  load(file, device);
  for (Node* node : graph_->nodes()) {
    if (!is_constant(*node)) nodes_.push_back(node);
  }
  find_lives();
  find_cuts();
  for (const Value* input : graph_->inputs().slice(1)) {
    id_ends_.push_back(embedding_rows(*graph_, *input));
  }
}

void ScriptGraph::load(const std::string& file, const c10::Device& device) {
  module_ = torch::jit::load(file, device);
  // The store's files are frozen. A file that is not may still be in training mode, and its batch
  // norms would be nodes of their own.
  if (module_.parameters().size() > 0) {
    module_.eval();
    module_ = torch::jit::freeze(module_);
  }
  graph_ = module_.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph_);
}

void ScriptGraph::replace_constants(
    const std::function<at::Tensor(const at::Tensor&)>& replacement) {
  engine::replace_constants(*graph_->block(), replacement);
  engine::replace_constants(*module_.get_method("forward").graph()->block(), replacement);
}

void ScriptGraph::find_lives() {
  std::unordered_map<const Value*, std::size_t> last_use;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for_each_use(*nodes_[i], [&](const Value* used) { last_use[used] = i; });
  }
  for (const Value* output : graph_->outputs()) last_use[output] = nodes_.size();
  const auto add = [&](const Value* value, std::size_t from) {
    const auto used = last_use.find(value);
    if (used != last_use.end()) lives_.push_back({value, from, used->second});
  };
  // The module itself is an input of every block, and no state.
  for (const Value* input : graph_->inputs().slice(1)) add(input, 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const Value* output : nodes_[i]->outputs()) add(output, i + 1);
  }
}

std::vector<const Value*> ScriptGraph::live_at(std::size_t place) const {
  if (place == 0) {
    const auto inputs = graph_->inputs().slice(1);
    return {inputs.begin(), inputs.end()};
  }
  if (place == nodes_.size()) return {graph_->outputs().begin(), graph_->outputs().end()};
  std::vector<const Value*> live;
  for (const Life& life : lives_) {
    if (life.from <= place && life.to >= place) live.push_back(life.value);
  }
  return live;
}

void ScriptGraph::find_cuts() {
  for (std::size_t place = 1; place < nodes_.size(); ++place) {
    const auto live = live_at(place);
    if (std::ranges::all_of(live, [](const Value* v) { return made_of_tensors(*v->type()); })) {
      cuts_.push_back({place, live.size()});
    }
  }
}

Step ScriptGraph::block(std::size_t from, std::size_t to) const {
  BlockBuilder builder;
  builder.add_input(graph_->inputs()[0]);
  for (const Value* value : live_at(from)) builder.add_input(value);
  for (std::size_t i = from; i < to; ++i) builder.add(nodes_[i]);
  for (const Value* value : live_at(to)) builder.add_output(value);
  // The interpreter without the optimising executor: fusion across a cut would change bits, and
  // specialising for a batch size takes several runs.
  return [code = torch::jit::Code(builder.graph(), fmt::format("nodes {} to {}", from, to)),
          self = module_._ivalue()](Stack& stack) {
    stack.insert(stack.begin(), self);
    torch::jit::InterpreterState(code).run(stack);
  };
}

std::vector<Step> ScriptGraph::blocks(const std::vector<std::size_t>& cuts) const {
  std::vector<Step> steps;
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    const bool known = std::ranges::any_of(cuts_, [&](const Cut& c) { return c.node == cut; });
    if (!known || cut <= from) {
      throw base::UsageError(
          fmt::format("{} cannot be cut at node {}; split it again with `sluice split`, or list "
                      "its cuts with --cuts",
                      file_, cut));
    }
    steps.push_back(block(from, cut));
    from = cut;
  }
  steps.push_back(block(from, nodes_.size()));
  return steps;
}

Stack ScriptGraph::arguments(const std::vector<at::Tensor>& batch) const {
  const auto inputs = graph_->inputs().slice(1);
  Stack stack;
  for (const Value* input : inputs) {
    const c10::Type& type = *input->type();
    const bool optional = type.kind() == c10::TypeKind::OptionalType;
    if (stack.size() < batch.size() && (optional || type.kind() == c10::TypeKind::TensorType)) {
      stack.emplace_back(batch[stack.size()]);
    } else if (stack.size() >= batch.size() && optional) {
      stack.emplace_back();
    } else if (stack.empty() && batch.size() == 1 && made_of_tensors(type)) {
      stack.emplace_back(c10::List<at::Tensor>(batch[0].unbind(0)));
    } else {
      break;
    }
  }
  if (stack.size() < inputs.size() || inputs.size() < batch.size()) {
    throw base::RunError(fmt::format(
        "{} cannot be served: its forward() takes {} arguments, not {}", file_, inputs.size(),
        batch.size() == 1 ? "one tensor" : fmt::format("{} tensors", batch.size())));
  }
  return stack;
}

}  // namespace sluice::engine
