#pragma once
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <new>
#include <system_error>
#include <thread>

#include "base/clock.hpp"

namespace sluice::intercept {

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
