#pragma once
#include <cstdint>

namespace sluice::shm {

/// Device::outside: the processes without a slot that do more than have a context on the device.
struct OutsideWord {
  std::uint16_t busy = 0;   ///< They use the GPU (base/gpu_use.hpp).
  std::uint16_t awake = 0;  ///< They used a little of it lately, or nobody can tell.

  friend bool operator==(const OutsideWord&, const OutsideWord&) = default;

  [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
    return busy | std::uint32_t{awake} << 16U;
  }
  [[nodiscard]] static constexpr OutsideWord unpack(std::uint32_t word) noexcept {
    return {static_cast<std::uint16_t>(word), static_cast<std::uint16_t>(word >> 16U)};
  }
};

}  // namespace sluice::shm
