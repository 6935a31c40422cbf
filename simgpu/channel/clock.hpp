#pragma once

#include <cstdint>
#include <ctime>

namespace sluice::simgpu {

// CLOCK_MONOTONIC in nanoseconds.
inline std::uint64_t clock_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace sluice::simgpu
