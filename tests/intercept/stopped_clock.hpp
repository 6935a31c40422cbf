#pragma once
// The clock of a whole test program, which stands until the test moves it. For one source file of a
// program.
#include <time.h>

#include <atomic>
#include <cstdint>

inline std::atomic<std::uint64_t> g_now_ns = 1'000'000'000'000;

// In front of that of libc. NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int clock_gettime(clockid_t /*id*/, timespec* now) noexcept {
  const std::uint64_t ns = g_now_ns.load();
  *now = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  return 0;
}
