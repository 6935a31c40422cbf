#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/top/view.hpp"

namespace sluice::tools {

/// What the clients are ordered by.
enum class Sort : std::uint8_t { kPriority, kName, kHeld, kLaunches, kP99 };

[[nodiscard]] Sort next(Sort sort);
[[nodiscard]] std::string_view to_string(Sort sort);

/// The clients to show, as indices into the view, in order: those whose name, command or pid
/// contains `filter`. Rates sort the greatest first.
[[nodiscard]] std::vector<std::size_t> rows_of(const View& view, Sort sort,
                                               const std::string& filter);

}  // namespace sluice::tools
