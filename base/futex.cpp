#include "base/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace sluice::base {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::uint64_t timeout_ns) noexcept {
  const int saved_errno = errno;  // the caller may be a hook, and errno belongs to the program
  timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000U),
                   static_cast<long>(timeout_ns % 1'000'000'000U)};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
  errno = saved_errno;
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  const int saved_errno = errno;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = saved_errno;
}

}  // namespace sluice::base
