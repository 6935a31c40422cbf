#pragma once
#include <cstddef>
#include <vector>

#include "engine/served_model.hpp"

namespace sluice::engine {

/// The median time of each block in ms, of `repeats` batches of `items` zeros that run one block
/// after another, after some that are not counted. Includes what a block boundary costs: keeping
/// the state of the batch and noticing that the block is done. Throws base::RunError.
[[nodiscard]] std::vector<double> time_blocks(ServedModel& model, std::size_t items, int repeats);

}  // namespace sluice::engine
