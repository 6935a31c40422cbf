#pragma once
#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/futex.hpp"
#include "intercept/client/threads.hpp"

namespace sluice::intercept {

/// A thread of ours that starts when it is first needed, repeats a step, and sleeps between the
/// steps. It may call the driver, which the watcher may not.
class Worker {
 public:
  struct Sleep {
    std::uint64_t ns;
    bool wakeable;  ///< If false, wake() does not end the sleep and makes no system call.
  };
  /// `step` runs again and again until the process ends; it must check itself whether the process
  /// is leaving.
  Worker(const char* name, std::function<Sleep()> step) : name_(name), step_(std::move(step)) {}

  /// Starts the thread, or ends its sleep. False if the system cannot create the thread. Takes no
  /// lock.
  bool wake() noexcept {
    calls_.fetch_add(1);
    if (!started_.exchange(true)) {
      const bool started = start_quiet_thread(name_, [this] { run(); });
      if (!started) started_.store(false);
      return started;
    }
    if (asleep_.load()) base::futex_wake_all(calls_);
    return true;
  }
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_relaxed); }

 private:
  [[noreturn]] void run() {
    prctl(PR_SET_TIMERSLACK, 1);  // ns; with the default slack, a sleep of 50 us takes 100 us
    const std::atomic<std::uint32_t> never{0};
    for (;;) {
      const std::uint32_t calls = calls_.load();  // before the step: a call during it counts
      Sleep sleep{1'000'000, false};
      if_memory_lasts([&] { sleep = step_(); });
      if (sleep.ns == 0) continue;
      asleep_.store(sleep.wakeable);
      base::futex_wait(sleep.wakeable ? calls_ : never, sleep.wakeable ? calls : 0, sleep.ns);
      asleep_.store(false);
    }
  }

  const char* name_;
  std::function<Sleep()> step_;
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> started_{false};
};

}  // namespace sluice::intercept
