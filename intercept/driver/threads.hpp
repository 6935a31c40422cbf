#pragma once
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/futex.hpp"

namespace sluice::intercept {

inline constinit thread_local pid_t t_thread_id = 0;

/// The id of the calling thread, cached. A forked child clears the cache.
inline pid_t thread_id() noexcept {
  if (t_thread_id == 0) t_thread_id = gettid();
  return t_thread_id;
}

/// The calling thread cannot be cancelled while an object of this class lives: a cancellation
/// inside our own waits would leave locks held. Never use it around a call of the program that
/// waits for GPU work, because the program may need to cancel the thread there.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

/// Starts a detached thread with all signals blocked, so that it receives no signal of the program.
/// False if the system cannot create another thread.
template <class Body>
bool start_quiet_thread(const char* name, Body body) noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread thread(body);
    pthread_setname_np(thread.native_handle(), name);
    thread.detach();
  } catch (const std::system_error&) {
    started = false;
  } catch (const std::bad_alloc&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

/// The set of threads that are inside a certain call. A thread may be cancelled inside a driver
/// call of the program, and no object with a destructor may live across such a call: the system's
/// unwinder does not work with the C++ runtime that is linked into this library, and would abort.
/// So a cancelled thread leaves its mark behind, and the mark of a thread that no longer exists
/// does not count.
class ThreadMarks {
 public:
  /// Looks from a place that few threads share, because each taken place that it asks about costs a
  /// system call. A mark with the id of this thread is left of a thread that had the same one.
  void enter() noexcept {
    const pid_t self = thread_id();
    int asks = 2;
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      Mark& mark = place(self, i);
      pid_t before = mark.thread.load();
      const bool free = before == 0 || before == self || (asks-- > 0 && is_gone(before));
      if (!free || !mark.thread.compare_exchange_strong(before, self)) continue;
      mark.calls.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  void leave() noexcept {
    const pid_t self = thread_id();
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      Mark& mark = place(self, i);
      if (mark.thread.load() != self) continue;
      return mark.thread.store(0);
    }
  }
  [[nodiscard]] bool any() const noexcept {
    return std::any_of(marks_.begin(), marks_.end(), is_inside);
  }
  /// Whether a thread is inside that was not yet seen in the same call for `long_ns`.
  [[nodiscard]] bool any_for_less_than(std::uint64_t long_ns, std::uint64_t now_ns) const noexcept {
    return std::any_of(marks_.begin(), marks_.end(), [=](const Mark& mark) {
      const std::uint64_t seen_ns = mark.seen_ns.load();
      const bool same = seen_ns != 0 && mark.seen_calls.load() == mark.calls.load();
      return is_inside(mark) && (!same || now_ns < seen_ns + long_ns);
    });
  }
  /// Since when a thread has been in the same call, as far as the looks before show; 0: no thread
  /// is in one. For one thread, which looks again and again.
  [[nodiscard]] std::uint64_t inside_since(std::uint64_t now_ns) noexcept {
    std::uint64_t oldest_ns = 0;
    for (Mark& mark : marks_) {
      if (!is_inside(mark)) continue;
      const std::uint32_t calls = mark.calls.load(std::memory_order_relaxed);
      const bool same = mark.seen_ns.load() != 0 && mark.seen_calls.load() == calls;
      if (!same) {
        mark.seen_ns.store(now_ns);
        mark.seen_calls.store(calls);
      }
      const std::uint64_t since_ns = mark.seen_ns.load();
      if (oldest_ns == 0 || since_ns < oldest_ns) oldest_ns = since_ns;
    }
    return oldest_ns;
  }
  [[nodiscard]] static bool is_gone(pid_t thread) noexcept {
    const int saved_errno = errno;
    const bool gone = tgkill(getpid(), thread, 0) != 0 && errno == ESRCH;
    errno = saved_errno;
    return gone;
  }

 private:
  struct Mark {
    std::atomic<pid_t> thread{0};
    std::atomic<std::uint32_t> calls{0};
    // Written by the thread that looks.
    std::atomic<std::uint32_t> seen_calls{0};
    std::atomic<std::uint64_t> seen_ns{0};
  };
  [[nodiscard]] static bool is_inside(const Mark& mark) noexcept {
    const pid_t thread = mark.thread.load();
    return thread != 0 && !is_gone(thread);
  }
  [[nodiscard]] Mark& place(pid_t thread, std::size_t after) noexcept {
    return marks_[(static_cast<std::size_t>(thread) + after) % marks_.size()];
  }

  std::array<Mark, 64> marks_{};
};

/// Sleeps in short steps while `holds` returns true, for at most `longest_ns`.
template <class Condition>
void nap_while(Condition holds, std::uint64_t longest_ns) noexcept {
  const NoCancel whole;
  const std::uint64_t begin = base::monotonic_ns();
  while (holds() && base::monotonic_ns() - begin < longest_ns) {
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

/// Runs `body`, which may allocate. Returns false if the memory does not suffice: a program that is
/// short of memory must not end because of us.
template <class Body>
bool if_memory_lasts(Body body) {
  try {
    body();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// A thread of ours that starts when it is first needed, repeats a step, and sleeps between the
/// steps. It may call the driver, which the watcher may not.
///
/// The driver may block it. Then another thread can relieve it, and the blocked one ends when its
/// step returns. So the step of a worker that is relieved may run in several threads at once.
class Worker {
 public:
  /// A step that takes so long is blocked.
  static constexpr std::uint64_t kBlockedNs = 100'000'000;
  /// Threads of a worker that are blocked at once; then nobody relieves the next.
  static constexpr int kMostBlocked = 8;

  struct Sleep {
    std::uint64_t ns;
    bool wakeable;          ///< If false, wake() does not end the sleep and makes no system call.
    bool pokeable = false;  ///< If false, poke() does not end a sleep that is not wakeable.
  };
  /// `step` runs again and again until the process ends; it must check itself whether the process
  /// is leaving.
  Worker(const char* name, std::function<Sleep()> step) : name_(name), step_(std::move(step)) {}

  /// Starts the thread, or ends its sleep. False if the system cannot create the thread. Takes no
  /// lock.
  bool wake() noexcept {
    calls_.fetch_add(1);
    if (!started_.exchange(true)) {
      const bool started = start();
      if (!started) started_.store(false);
      return started;
    }
    if (asleep_.load()) base::futex_wake_all(calls_);
    return true;
  }
  /// Ends a sleep that is pokeable. Takes no lock.
  void poke() noexcept {
    pokes_.fetch_add(1);
    if (dozes_.load()) base::futex_wake_all(pokes_);
  }
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_relaxed); }
  /// Whether relieve() has something to do. Allocates nothing.
  [[nodiscard]] bool is_blocked(std::uint64_t now_ns) const noexcept {
    const std::uint64_t since = step_since_ns_.load();
    return since != 0 && now_ns > since && now_ns - since > kBlockedNs && threads_ <= kMostBlocked;
  }
  /// Starts another thread if the step is blocked. For one thread at a time.
  void relieve(std::uint64_t now_ns) noexcept {
    if (!is_blocked(now_ns)) return;
    current_.fetch_add(1);
    step_since_ns_.store(0);
    static_cast<void>(start());
  }

 private:
  bool start() noexcept {
    threads_.fetch_add(1);
    const std::uint32_t self = current_.load();
    if (start_quiet_thread(name_, [this, self] { run(self); })) return true;
    threads_.fetch_sub(1);
    return false;
  }
  /// Returns when another thread has taken over.
  void run(std::uint32_t self) {
    prctl(PR_SET_TIMERSLACK, 1);  // ns; with the default slack, a sleep of 50 us takes 100 us
    const std::atomic<std::uint32_t> never{0};
    for (;;) {
      const std::uint32_t calls = calls_.load();  // before the step: a call during it counts
      const std::uint32_t pokes = pokes_.load();
      Sleep sleep{1'000'000, false};
      std::uint64_t since = base::monotonic_ns();
      step_since_ns_.store(since);
      if_memory_lasts([&] { sleep = step_(); });
      step_since_ns_.compare_exchange_strong(since, 0);
      if (self != current_.load()) break;
      if (sleep.ns == 0) continue;
      if (sleep.pokeable && !sleep.wakeable) {
        dozes_.store(true);
        base::futex_wait(pokes_, pokes, sleep.ns);
        dozes_.store(false);
        continue;
      }
      asleep_.store(sleep.wakeable);
      base::futex_wait(sleep.wakeable ? calls_ : never, sleep.wakeable ? calls : 0, sleep.ns);
      asleep_.store(false);
    }
    threads_.fetch_sub(1);
  }

  const char* name_;
  std::function<Sleep()> step_;
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<std::uint32_t> pokes_{0};
  std::atomic<bool> dozes_{false};
  std::atomic<bool> started_{false};
  std::atomic<std::uint32_t> current_{0};        ///< The thread that was not relieved.
  std::atomic<std::uint64_t> step_since_ns_{0};  ///< When its step began; 0: it is in none.
  std::atomic<int> threads_{0};
};

}  // namespace sluice::intercept
