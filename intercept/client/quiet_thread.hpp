#pragma once
#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>

namespace sluice::intercept {

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
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace sluice::intercept
