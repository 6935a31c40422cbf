#pragma once
#include <cstddef>
#include <vector>

#include "engine/served_model.hpp"

namespace sluice::engine {

/// The median time of each block in ms, of `repeats` batches of `items` zeros that run one block
/// after another, after some that are not counted. Includes what a block boundary costs: keeping
/// the state of the batch and noticing that the block is done. Throws base::RunError.
[[nodiscard]] std::vector<double> time_blocks(ServedModel& model, std::size_t items, int repeats);

/// The times of a model in blocks and of the same model uncut.
struct SplitTimes {
  std::vector<double> ms{};  ///< Of each block.
  double whole_ms = 0;       ///< Of the uncut model.

  friend bool operator==(const SplitTimes&, const SplitTimes&) = default;
};

/// As time_blocks(), with batches of both models in turn: whatever else the machine does makes both
/// slower alike, so they can be compared. `whole` has one block.
[[nodiscard]] SplitTimes time_split(ServedModel& split, ServedModel& whole, std::size_t items,
                                    int repeats);

}  // namespace sluice::engine
