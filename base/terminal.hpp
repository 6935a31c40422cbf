#pragma once
#include <cstddef>
#include <optional>

namespace sluice::base {

/// The width of standard output: that of its terminal, else COLUMNS (40 to 1000), which `watch`
/// sets. Empty for a pipe or a file, where lines may have any length.
[[nodiscard]] std::optional<std::size_t> terminal_columns();

}  // namespace sluice::base
