#pragma once
#include <algorithm>
#include <cstdint>

namespace sluice::shm {

/// Whether a client is one of an MPS daemon, and how wide: what it says of itself when it attaches,
/// for status output (docs/guide/space.md).
struct MpsWord {
  enum class Mode : std::uint8_t {
    kUnknown,  ///< The client was built before it could say so.
    kNone,     ///< It takes turns with others.
    kSession,  ///< Under the daemon of its session.
    kOther,    ///< Under another MPS daemon.
  };
  static constexpr std::uint32_t kMostSms = 0x1fff;

  Mode mode = Mode::kUnknown;
  std::uint8_t daemon = 0;   ///< Which daemon of the session: 1, 2, ...
  std::uint8_t percent = 0;  ///< CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 0: not set.
  std::uint32_t sms = 0;     ///< The SMs of which the driver tells the program; 0: unknown.

  friend bool operator==(const MpsWord&, const MpsWord&) = default;

  [[nodiscard]] constexpr bool is_wide() const noexcept { return percent == 0 || percent >= 100; }
  [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
    return static_cast<std::uint32_t>(mode) | std::uint32_t{daemon} << 3U |
           (percent & 0x7fU) << 11U | std::min(sms, kMostSms) << 18U;
  }
  [[nodiscard]] static constexpr MpsWord unpack(std::uint32_t word) noexcept {
    const std::uint32_t mode = word & 7U;
    return {
        mode <= static_cast<std::uint32_t>(Mode::kOther) ? static_cast<Mode>(mode) : Mode::kUnknown,
        static_cast<std::uint8_t>(word >> 3U & 0xffU),
        static_cast<std::uint8_t>(word >> 11U & 0x7fU), word >> 18U & kMostSms};
  }
};

}  // namespace sluice::shm
