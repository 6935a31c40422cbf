#pragma once
#include <cstddef>
#include <optional>

namespace sluice::base {

/// Columns that standard output has room for: those of its terminal, else COLUMNS (40 to 1000) as
/// `watch` sets it; empty in a pipe or a file, where lines may be as long as they are.
[[nodiscard]] std::optional<std::size_t> terminal_columns();

}  // namespace sluice::base
