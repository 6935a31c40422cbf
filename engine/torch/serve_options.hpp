#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace sluice::engine {

/// How a PyTorch model is loaded for a server.
struct ServeOptions {
  std::optional<int> gpu;  ///< Index of the GPU; none: the CPU.
  std::size_t max_batch = 1;
  /// The nodes at which blocks begin, from find_split(). Empty: one block, the whole model.
  std::vector<std::size_t> cuts;
};

}  // namespace sluice::engine
