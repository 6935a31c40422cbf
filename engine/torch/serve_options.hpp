#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "engine/placement.hpp"

namespace sluice::engine {

/// How a PyTorch model is loaded for a server.
struct ServeOptions {
  std::optional<int> gpu;  ///< Index of the GPU; none: the CPU.
  std::size_t max_batch = 1;
  /// The nodes at which blocks begin, from find_split(). Empty: one block, the whole model.
  std::vector<std::size_t> cuts;
  /// How the weights of a TorchScript model on a GPU come and go; none: they stay.
  std::optional<Placement> placement{};
  /// Whether models of the GPU run one after another, and so share the workspace of their graphs.
  bool takes_turns = true;
};

}  // namespace sluice::engine
