#pragma once
#include <sched.h>
#include <time.h>

#include "base/clock.hpp"
#include "intercept/client/threads.hpp"
#include "intercept/driver/capture_mode.hpp"
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

enum class Waited { kDone, kFailed, kTooLong };

/// No wait on the driver may be unbounded: the program may be waiting for its own later launch.
inline constexpr std::uint64_t kLongestDriverWaitNs = 5'000'000'000;

/// Calls `query` (a cuStreamQuery or cuEventQuery) until it reports success, for at most 5 s. Time
/// during which `excused` returns true does not count. Spins first, because every microsecond of
/// reaction time is added to the sync point; then yields; then sleeps.
template <class Query, class Excused>
Waited wait_for_driver(Query query, Excused excused) noexcept {
  constexpr std::uint64_t kSpinNs = 50'000;
  constexpr std::uint64_t kYieldNs = 500'000;
  const RelaxedCapture relaxed;
  const NoCancel whole;
  const std::uint64_t begin = base::monotonic_ns();
  std::uint64_t last = begin;
  std::uint64_t excused_ns = 0;
  for (;;) {
    const CUresult state = query();
    if (state == CUDA_SUCCESS) return Waited::kDone;
    if (state != CUDA_ERROR_NOT_READY) return Waited::kFailed;
    const std::uint64_t now = base::monotonic_ns();
    if (excused()) excused_ns += now - last;
    last = now;
    const std::uint64_t waited = now - begin;
    if (waited - excused_ns > kLongestDriverWaitNs) return Waited::kTooLong;
    if (waited > kYieldNs) {
      const timespec nap{0, 50'000};
      nanosleep(&nap, nullptr);
    } else if (waited > kSpinNs) {
      sched_yield();
    }
  }
}

}  // namespace sluice::intercept
