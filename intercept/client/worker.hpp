#pragma once
#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/futex.hpp"
#include "intercept/client/threads.hpp"

namespace sluice::intercept {

/// A thread of ours that starts when it is first needed. It may call the driver, which the watcher
/// may not. It repeats a step and sleeps in between.
class Worker {
 public:
  struct Sleep {
    std::uint64_t ns;
    bool wakeable;  ///< Else wake() does not cut it short, and costs its caller no system call.
  };
  /// `step` runs until the process ends; it makes its own judgement of a process that leaves.
  Worker(const char* name, std::function<Sleep()> step) : name_(name), step_(std::move(step)) {}

  /// Starts the thread, or ends its sleep. False if the system has no thread left. Takes no lock.
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
    prctl(PR_SET_TIMERSLACK, 1);  // ns; by default a wait of 50 us takes twice as long
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
