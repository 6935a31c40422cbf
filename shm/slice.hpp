#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shm/board.hpp"

namespace sluice::shm {

/// The time slice that a user asks for (docs/reference/slices.md), as Slot::requested_slice has it:
/// microseconds, or kSliceAuto or kSliceOff.
inline constexpr std::uint32_t kSliceAuto = 0;
inline constexpr std::uint32_t kSliceOff = 0xffff'ffff;
inline constexpr std::uint32_t kLeastSliceUs = 20;
inline constexpr std::uint32_t kMostSliceUs = 100'000;
/// The slice that the driver sets. A longer one is at the cost of everybody else on the GPU.
inline constexpr std::uint32_t kDriversSliceUs = 2'000;
inline constexpr std::string_view kSliceForms = "auto, off, or a time from 20us to 100ms";

/// Nothing for a text of another form.
[[nodiscard]] std::optional<std::uint32_t> parse_slice(std::string_view text) noexcept;
[[nodiscard]] std::string slice_text(std::uint32_t slice);
[[nodiscard]] constexpr bool is_slice(std::uint32_t slice) noexcept {
  return slice == kSliceAuto || slice == kSliceOff ||
         (slice >= kLeastSliceUs && slice <= kMostSliceUs);
}

/// What a client that asks for `slice` gets where the longest allowed one is `most_us`: kSliceAuto
/// where none that is longer than the driver's is allowed.
[[nodiscard]] constexpr std::uint32_t allowed_slice(std::uint32_t slice,
                                                    std::uint32_t most_us) noexcept {
  if (slice == kSliceOff || slice <= kDriversSliceUs) return slice;
  return most_us <= kDriversSliceUs ? kSliceAuto : std::min(slice, most_us);
}

/// What is wrong with a slice as a user wrote it, and what is allowed; empty if nothing is wrong.
[[nodiscard]] std::string check_slice(const std::string& text);

/// "short", for status output.
[[nodiscard]] std::string_view slice_state_name(SliceState state) noexcept;

}  // namespace sluice::shm
