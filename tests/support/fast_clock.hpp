#pragma once

namespace sluice::test {

/// While an object lives, CLOCK_MONOTONIC of this process runs so many times as fast, also for a
/// library that is preloaded into it. So a test of a bound of seconds waits for a fraction of it.
/// Sleeps and timeouts take as long as they say, and other processes have their own clock. One
/// object at a time.
///
/// Link fast_clock.cpp into the test program itself: the program's clock_gettime() comes before
/// that of libc.
class FastClock {
 public:
  static constexpr unsigned kFactor = 20;
  FastClock() noexcept;
  ~FastClock();
  FastClock(const FastClock&) = delete;
  FastClock& operator=(const FastClock&) = delete;
};

}  // namespace sluice::test
