#pragma once
#include <time.h>

#include <cstdint>

namespace sluice::base {

/// The time of a clock in ns. Async-signal-safe; makes no system call if the vDSO has the clock.
inline std::uint64_t clock_ns(clockid_t id) noexcept {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The clock of every time on the board: CLOCK_MONOTONIC in ns, the same in all processes.
inline std::uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

/// Since a monotonic_ns() of before.
inline double seconds_since(std::uint64_t begin_ns) noexcept {
  return static_cast<double>(monotonic_ns() - begin_ns) / 1e9;
}

/// Since 1970.
inline double unix_seconds() noexcept {
  return static_cast<double>(clock_ns(CLOCK_REALTIME)) / 1e9;
}

}  // namespace sluice::base
