#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

/// Names of the counted driver entries, for programs that read a board. Needs no CUDA header.
namespace sluice::intercept {

namespace detail {
inline constexpr auto kKinds = std::to_array<std::string_view>({
#define SLUICE_HOOK(name, kind) #kind,
#include "intercept/hooks.def"
#undef SLUICE_HOOK
});
inline constexpr auto kLaunchEntries =
    static_cast<std::size_t>(std::count(kKinds.begin(), kKinds.end(), std::string_view("Launch")));
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
