#pragma once
#include <string_view>

#include "intercept/driver/driver.hpp"

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace sluice::intercept {

/// Stream 0 of a per-thread entry is the thread's own default stream. Our own calls name that
/// stream explicitly.
inline CUstream per_thread(CUstream stream) noexcept {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}
inline CUstream plain(CUstream stream) noexcept { return stream; }

/// Whether stream 0 of this entry is the thread's own default stream.
template <Entry entry>
constexpr bool is_per_thread() noexcept {
  constexpr std::string_view kName = kEntryNames[static_cast<std::size_t>(entry)];
  return kName.ends_with("_ptsz") || kName.ends_with("_ptds");
}
template <Entry entry>
CUstream named(CUstream stream) noexcept {
  return is_per_thread<entry>() ? per_thread(stream) : stream;
}

}  // namespace sluice::intercept
