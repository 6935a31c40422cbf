#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>

#include "engine/tensor.hpp"

namespace sluice::engine {

/// Whether tensors of this type can index a table.
[[nodiscard]] bool may_be_ids(DataType type);

/// The rows of the smallest embedding that an input of a graph indexes: its elements must be ids
/// from 0 to this number minus 1. Nothing if the input reaches no embedding with a constant table,
/// or only after arithmetic or in part. `graph` must be frozen and inlined.
[[nodiscard]] std::optional<std::int64_t> embedding_rows(const torch::jit::Graph& graph,
                                                         const torch::jit::Value& input);

}  // namespace sluice::engine
