#pragma once
#include <span>
#include <string_view>

namespace sluice::tools {

/// The candidate that `word` was most likely meant to be, by edit distance; empty if none is near.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace sluice::tools
