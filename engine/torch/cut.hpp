#pragma once
#include <cstddef>

namespace sluice::engine {

/// A place between two nodes of a model's graph at which it can be cut.
struct Cut {
  std::size_t node;     ///< The first node behind the cut.
  std::size_t tensors;  ///< The values that cross it: tensors and lists of tensors.
};

}  // namespace sluice::engine
