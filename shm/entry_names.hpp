#pragma once
#include <array>
#include <string_view>

#include "shm/board.hpp"

namespace sluice::shm {

/// Names of the driver entries that give the GPU work. Slot::entries[i] counts kEntryNames[i].
inline constexpr auto kEntryNames = std::to_array<std::string_view>({
#define SLUICE_LAUNCH_ENTRY(name) #name,
#include "shm/launch_entries.def"
#undef SLUICE_LAUNCH_ENTRY
});
static_assert(kEntryNames.size() <= kMaxEntries);

}  // namespace sluice::shm
