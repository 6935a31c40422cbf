#pragma once
#include <array>
#include <cstddef>
#include <string_view>

/// Names of the counted driver entries, for programs that read a board. Needs no CUDA header.
namespace sluice::intercept {

namespace detail {
inline constexpr std::size_t kLaunchEntries = 0
#define SLUICE_HOOK(name, kind) +(std::string_view(#kind) == "Launch" ? 1 : 0)
#include "intercept/hooks.def"
#undef SLUICE_HOOK
    ;
}  // namespace detail

/// kEntryNames[i] is counted in Slot::entries[i].
inline constexpr auto kEntryNames = [] {
  std::array<std::string_view, detail::kLaunchEntries> names{};
  std::size_t next = 0;
#define SLUICE_HOOK(name, kind) \
  if (std::string_view(#kind) == "Launch") names[next++] = #name;
#include "intercept/hooks.def"
#undef SLUICE_HOOK
  return names;
}();

}  // namespace sluice::intercept
