#pragma once
#include <cstdint>

namespace sluice::scheduler {

__extension__ using Wide = unsigned __int128;  // The product of two times of 5 s overflows 64 bits.

/// Smith's rule: of two tasks, the one with the smaller key goes first. That order has the smaller
/// sum of response ratios (latency / limit), because the weight of a task is 1/limit.
[[nodiscard]] constexpr Wide smith_key(std::uint64_t left_ns, std::uint64_t limit_ns) {
  return Wide{left_ns} * limit_ns;
}

}  // namespace sluice::scheduler
