#pragma once
#include <time.h>

#include <cstdint>

namespace sluice::base {

/// Time of a clock in nanoseconds. Async-signal-safe, no system call where the vDSO serves it.
inline std::uint64_t clock_ns(clockid_t id) noexcept {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The clock of everything on the board: CLOCK_MONOTONIC, ns, comparable between processes.
inline std::uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

}  // namespace sluice::base
