#pragma once
#include <c10/core/Storage.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/arena_weights.hpp"
#include "engine/torch/script_graph.hpp"

namespace sluice::engine {

/// The constants of a TorchScript graph in an arena: the tensors stay, their memory comes and goes.
class TorchWeights : public ArenaWeights {
 public:
  /// Moves the tensor constants of `graph`, which are on `device`, into an arena, in the order in
  /// which the blocks need them, and frees their old memory. `graph.blocks(cuts)` must come later.
  /// The weights are loaded. Models with the same `key` share the copy in host memory. Throws
  /// LibTorch's errors, OutOfMemory, base::RunError.
  TorchWeights(std::shared_ptr<const DeviceContext> context, Placement placement,
               const c10::Device& device, ScriptGraph& graph, const std::vector<std::size_t>& cuts,
               const std::string& key);

  void load() override;

 private:
  /// Memory that some tensors share. Each has a storage of its own, because the state of a batch
  /// between two blocks is saved by storage.
  struct Slot {
    at::Tensor old;  ///< The old memory, as bytes.
    c10::Storage storage;
    std::uint64_t offset;  ///< In the arena.
  };
  struct Layout {
    std::map<const void*, Slot> slots;  ///< By the old address.
    std::vector<std::uint64_t> block_ends;
  };
  static Layout lay_out(const ScriptGraph& graph, const std::vector<std::size_t>& cuts);
  TorchWeights(std::shared_ptr<const DeviceContext> context, Placement placement,
               const c10::Device& device, ScriptGraph& graph, const Layout& layout,
               const std::string& key);
  void point_to_arena();

  c10::Device device_;
  std::vector<std::pair<c10::Storage, std::uint64_t>> storages_;  ///< And where each begins.
};

}  // namespace sluice::engine
