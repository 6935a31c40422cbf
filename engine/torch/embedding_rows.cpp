#include "engine/torch/embedding_rows.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

namespace sluice::engine {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

/// Operators whose output has all elements of their first input, with the same values.
constexpr std::array<std::string_view, 16> kKeepElements{
    "aten::alias",  "aten::clone",     "aten::contiguous", "aten::detach",
    "aten::expand", "aten::expand_as", "aten::flatten",    "aten::int",
    "aten::long",   "aten::permute",   "aten::reshape",    "aten::squeeze",
    "aten::to",     "aten::transpose", "aten::unsqueeze",  "aten::view",
};

/// Follows the elements of the input through the graph.
class Elements {
 public:
  explicit Elements(const Value* input) : same_{input} {}

  void follow(const Block& block) {
    for (const Node* node : block.nodes()) {
      for (const Block* body : node->blocks()) follow(*body);
      note(*node);
    }
  }
  [[nodiscard]] std::optional<std::int64_t> rows() const { return rows_; }

 private:
  void note(const Node& node) {
    const std::string_view kind = node.kind().toQualString();
    if (kind == "aten::embedding" || kind == "aten::embedding_bag") {
      if (same_.contains(node.inputs()[1])) note_table(*node.inputs()[0]);
    } else if (kind == "prim::If") {
      for (const Block* body : node.blocks()) {
        for (std::size_t i = 0; i < node.outputs().size(); ++i) {
          if (same_.contains(body->outputs()[i])) same_.insert(node.outputs()[i]);
        }
      }
    } else if (std::ranges::find(kKeepElements, kind) != kKeepElements.end() &&
               same_.contains(node.inputs()[0])) {
      same_.insert(node.outputs()[0]);
    }
  }
  void note_table(const Value& table) {
    const auto constant = torch::jit::toIValue(&table);
    if (!constant || !constant->isTensor()) return;
    const std::int64_t rows = constant->toTensor().size(0);
    rows_ = std::min(rows_.value_or(rows), rows);
  }

  std::unordered_set<const Value*> same_;
  std::optional<std::int64_t> rows_;
};

}  // namespace

bool may_be_ids(DataType type) {
  return type == DataType::kUint8 || (type >= DataType::kInt8 && type <= DataType::kInt64);
}

std::optional<std::int64_t> embedding_rows(const torch::jit::Graph& graph,
                                           const torch::jit::Value& input) {
  Elements elements(&input);
  elements.follow(*graph.block());
  return elements.rows();
}

}  // namespace sluice::engine
