#include "tests/support/fast_clock.hpp"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::test {
namespace {

/// From `real_ns` on, the clock shows `shown_ns` and runs `factor` times as fast.
struct Pace {
  std::uint64_t real_ns = 0;
  std::uint64_t shown_ns = 0;
  unsigned factor = 1;

  [[nodiscard]] std::uint64_t shown_at(std::uint64_t ns) const noexcept {
    return ns < real_ns ? shown_ns : shown_ns + (ns - real_ns) * factor;
  }
};

/// A thread may still read an old one.
constinit std::array<Pace, 64> g_paces{};
constinit std::atomic<const Pace*> g_pace{g_paces.data()};

std::uint64_t real_ns() noexcept {
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void set_factor(unsigned factor) noexcept {
  const Pace* const before = g_pace.load();
  Pace& next = g_paces.at(static_cast<std::size_t>(before - g_paces.data()) + 1);
  const std::uint64_t now = real_ns();
  next = {now, before->shown_at(now), factor};
  g_pace.store(&next);
}

}  // namespace

FastClock::FastClock() noexcept { set_factor(kFactor); }
FastClock::~FastClock() { set_factor(1); }

}  // namespace sluice::test

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t id,
                                                                    timespec* now) noexcept {
  using namespace sluice::test;
  if (id != CLOCK_MONOTONIC) return static_cast<int>(syscall(SYS_clock_gettime, id, now));
  const std::uint64_t ns = g_pace.load()->shown_at(real_ns());
  *now = {static_cast<time_t>(ns / 1'000'000'000U), static_cast<long>(ns % 1'000'000'000U)};
  return 0;
}
