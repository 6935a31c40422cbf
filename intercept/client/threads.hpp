#pragma once
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>

#include "base/clock.hpp"

namespace sluice::intercept {

/// The id of the calling thread, asked for once.
inline pid_t thread_id() noexcept {
  static constinit thread_local pid_t id = 0;
  if (id == 0) id = gettid();
  return id;
}

/// While it lives the calling thread is not cancelled: inside our own waits a cancellation would
/// leave locks behind. Never around a call of the program's own.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

/// Starts a detached thread that no signal of the program is delivered to. False if the system
/// has no thread left to give.
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

/// The threads that are inside something now. A thread may be cancelled inside a driver call of the
/// program's own, and no destructor may stand around such a call: the unwinder of the system does
/// not work with the C++ runtime that is linked in here, and would abort. So the mark of a thread
/// that is gone does not count.
class ThreadMarks {
 public:
  void enter() noexcept {
    const pid_t self = thread_id();
    for (std::atomic<pid_t>& mark : marks_) {
      pid_t before = mark.load();
      const bool free = before == 0 || is_gone(before);
      if (free && mark.compare_exchange_strong(before, self)) return;
    }
  }
  void leave() noexcept {
    pid_t self = thread_id();
    for (std::atomic<pid_t>& mark : marks_) {
      if (mark.compare_exchange_strong(self, 0)) return;
      self = thread_id();
    }
  }
  [[nodiscard]] bool any() const noexcept {
    for (const std::atomic<pid_t>& mark : marks_) {
      const pid_t thread = mark.load();
      if (thread != 0 && !is_gone(thread)) return true;
    }
    return false;
  }
  /// In a forked child, where none of the threads exists.
  void clear() noexcept {
    for (std::atomic<pid_t>& mark : marks_) mark.store(0);
  }
  [[nodiscard]] static bool is_gone(pid_t thread) noexcept {
    const int saved_errno = errno;
    const bool gone = tgkill(getpid(), thread, 0) != 0 && errno == ESRCH;
    errno = saved_errno;
    return gone;
  }

 private:
  std::array<std::atomic<pid_t>, 64> marks_{};
};

/// Sleeps repeatedly while `holds`, for `longest_ns` at most.
template <class Condition>
void nap_while(Condition holds, std::uint64_t longest_ns) noexcept {
  const NoCancel whole;
  const std::uint64_t begin = base::monotonic_ns();
  while (holds() && base::monotonic_ns() - begin < longest_ns) {
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

/// Runs what may need memory. Returns false, and forgets the attempt, where there is none: a
/// program that is short of memory must not end because of us.
template <class Body>
bool if_memory_lasts(Body body) {
  try {
    body();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace sluice::intercept
