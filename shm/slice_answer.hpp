#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

namespace sluice::shm {

/// Whether a device obeys time slices, as a trial found (docs/reference/slices.md).
struct SliceAnswer {
  enum class Kind : std::uint8_t { kNone, kObeyed, kNotObeyed };
  Kind kind = Kind::kNone;
  std::uint32_t short_us = 0;  ///< How long a short job took with short slices, to 10 us.

  friend bool operator==(const SliceAnswer&, const SliceAnswer&) = default;

  [[nodiscard]] constexpr std::uint16_t pack() const noexcept {
    const std::uint32_t tens = std::min<std::uint32_t>(short_us / 10, 0x3fff);
    return static_cast<std::uint16_t>(static_cast<std::uint32_t>(kind) | tens << 2U);
  }
  [[nodiscard]] static constexpr SliceAnswer unpack(std::uint16_t word) noexcept {
    return {static_cast<Kind>(word & 3U), (word >> 2U) * 10U};
  }
};

/// "obeyed", "not obeyed" or "no answer yet".
[[nodiscard]] const char* kind_name(SliceAnswer::Kind kind) noexcept;
/// The kind, and the time of a job if slices are obeyed: "obeyed (0.26 ms)".
[[nodiscard]] std::string answer_text(SliceAnswer answer);

}  // namespace sluice::shm
