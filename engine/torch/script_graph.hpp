#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/torch/cut.hpp"
#include "engine/torch/script_weights.hpp"
#include "engine/torch/step.hpp"

namespace sluice::engine {

/// The forward graph of a TorchScript file, frozen and inlined, and the places at which it can be
/// cut. Its nodes are those of the top level without constants, numbered from 0 in the order of
/// execution. Throws LibTorch's errors, and base::RunError for a graph that cannot be served.
class ScriptGraph {
 public:
  ScriptGraph(const std::string& file, const c10::Device& device);

  [[nodiscard]] std::size_t nodes() const { return nodes_.size(); }
  /// In ascending order. A cut needs every value that crosses it to be a tensor or a list of
  /// tensors, because the state of a batch between two blocks is made of tensors.
  [[nodiscard]] const std::vector<Cut>& cuts() const { return cuts_; }

  /// For each input: the ids that it may hold end before this one. Nothing if that is unknown.
  [[nodiscard]] const std::vector<std::optional<std::int64_t>>& id_ends() const { return id_ends_; }

  /// The tensor constants, in the order in which the nodes need them.
  [[nodiscard]] std::vector<GraphConstant> constants() const { return tensor_constants(nodes_); }
  /// As engine::replace_constants(), in every copy of the graph, so that the old tensors end.
  /// Before blocks().
  void replace_constants(const std::function<at::Tensor(const at::Tensor&)>& replacement);

  /// The parts between the cuts, in order. Run one after another they compute the model: from its
  /// arguments to its outputs. They do exactly the work of the uncut model. Throws base::UsageError
  /// if a cut is not one of cuts(), or the cuts do not ascend.
  [[nodiscard]] std::vector<Step> blocks(const std::vector<std::size_t>& cuts) const;

  /// The arguments of forward() for the tensors of a batch, in order. Arguments that are left must
  /// be optional. A list of tensors gets the items of a single tensor.
  [[nodiscard]] torch::jit::Stack arguments(const std::vector<at::Tensor>& batch) const;

 private:
  /// Where a value is computed and where it is used last, as places between nodes.
  struct Life {
    const torch::jit::Value* value;
    std::size_t from;
    std::size_t to;
  };

  void load(const std::string& file, const c10::Device& device);
  void find_lives();
  void find_cuts();
  [[nodiscard]] std::vector<const torch::jit::Value*> live_at(std::size_t place) const;
  [[nodiscard]] Step block(std::size_t from, std::size_t to) const;

  std::string file_;
  torch::jit::Module module_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<torch::jit::Node*> nodes_;
  std::vector<Life> lives_;
  std::vector<Cut> cuts_;
  std::vector<std::optional<std::int64_t>> id_ends_;
};

}  // namespace sluice::engine
