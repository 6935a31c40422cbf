#pragma once

namespace sluice::intercept {

/// The entry of a table for which `same(entry)` is true; else the least recently used one, empty.
/// The caller counts each use in `used`, which is 0 while an entry is free.
template <class Entries, class Same>
[[nodiscard]] auto& find_or_replace(Entries& entries, Same same) noexcept {
  auto* oldest = &entries.front();
  for (auto& entry : entries) {
    if (entry.used != 0 && same(entry)) return entry;
    if (entry.used < oldest->used) oldest = &entry;
  }
  *oldest = {};
  return *oldest;
}

}  // namespace sluice::intercept
