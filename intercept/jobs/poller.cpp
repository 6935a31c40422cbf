#include "intercept/jobs/poller.hpp"

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/futex.hpp"
#include "intercept/client/interposer.hpp"
#include "intercept/client/quiet_thread.hpp"
#include "shm/gates.hpp"

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kPeriodNs = 1'000'000;
/// While launches are being measured: as long before and after one, no other client may have run.
constexpr std::uint64_t kSamplingPeriodNs = 400'000;
/// Jobs that follow each other closely find the poller awake, and need not wake it each time.
constexpr std::uint64_t kStayAwakeNs = 100'000'000;
constexpr std::uint64_t kIdleNs = 1'000'000'000;

/// Counts the jobs opened: a job opened while the poller decides to sleep keeps it awake.
constinit std::atomic<std::uint32_t> g_opened{0};
constinit std::atomic<bool> g_asleep{false};
constinit std::atomic<bool> g_started{false};

[[noreturn]] void run() noexcept {
  Interposer& process = Interposer::instance();
  const std::atomic<std::uint32_t> never{0};
  std::uint64_t last_active_ns = 0;
  for (;;) {
    const std::uint32_t opened = g_opened.load();
    bool active = false;
    bool sampling = false;
    process.for_each_client([&](Client& client) {
      if (g_leaving.load()) return;
      client.jobs().poll();
      sampling = client.pacer().collect_samples() || sampling;
      active = active || client.jobs().need_polling();
    });
    const std::uint64_t now = base::monotonic_ns();
    if (active) last_active_ns = now;
    if (sampling || now - last_active_ns < kStayAwakeNs) {
      base::futex_wait(never, 0, sampling ? kSamplingPeriodNs : kPeriodNs);
      continue;
    }
    g_asleep.store(true);
    base::futex_wait(g_opened, opened, kIdleNs);
    g_asleep.store(false);
  }
}

}  // namespace

void wake_poller() noexcept {
  g_opened.fetch_add(1);
  if (!g_started.exchange(true)) {
    if (!start_quiet_thread("sluice-poll", run)) g_started.store(false);
  } else if (g_asleep.load()) {
    base::futex_wake_all(g_opened);
  }
}

}  // namespace sluice::intercept
