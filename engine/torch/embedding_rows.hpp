#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>

namespace sluice::engine {

/// The rows of the smallest embedding that a model's input indexes: its elements must be ids from 0
/// to this number minus 1. Nothing if the input reaches no embedding with a constant table, or only
/// after arithmetic or in part. `graph` must be frozen and inlined; its input 0 is the module.
[[nodiscard]] std::optional<std::int64_t> embedding_rows(const torch::jit::Graph& graph);

}  // namespace sluice::engine
