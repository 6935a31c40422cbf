#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace sluice::engine {

/// A tensor that is a constant of a graph.
struct GraphConstant {
  torch::jit::Node* node;  ///< The constant.
  std::size_t first_use;   ///< Index in `nodes` of the first node that uses it.

  [[nodiscard]] at::Tensor tensor() const;
  void replace(const at::Tensor& tensor) const;
};

/// The tensor constants that `nodes`, the top level of a graph in the order of execution, use,
/// also inside branches and loops, in the order of their first use.
[[nodiscard]] std::vector<GraphConstant> tensor_constants(
    const std::vector<torch::jit::Node*>& nodes);

/// Replaces every tensor constant of a graph, used or not, for which `replacement` returns one.
void replace_constants(torch::jit::Block& graph,
                       const std::function<at::Tensor(const at::Tensor&)>& replacement);

}  // namespace sluice::engine
