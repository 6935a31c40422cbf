#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace sluice::simgpu {

// Sleeps while `word` is `expected`, at most `timeout_ns`. May return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::uint64_t timeout_ns) {
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000U),
                         static_cast<long>(timeout_ns % 1'000'000'000U)};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sluice::simgpu
