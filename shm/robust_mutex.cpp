#include "shm/robust_mutex.hpp"

#include <linux/futex.h>

#include <cerrno>

namespace sluice::shm {

void RobustMutex::initialise() noexcept {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

bool RobustMutex::take() noexcept {
  const int result = pthread_mutex_trylock(&mutex_);
  if (result == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  return result == 0 || result == EOWNERDEAD;
}

void RobustMutex::release() noexcept { pthread_mutex_unlock(&mutex_); }

/// glibc keeps the word of the kernel's robust futexes in this public member: the owner's thread
/// id, which the kernel clears when the owner dies.
bool RobustMutex::held() const noexcept {
  const int word = __atomic_load_n(&mutex_.__data.__lock, __ATOMIC_SEQ_CST);
  return (static_cast<unsigned>(word) & FUTEX_TID_MASK) != 0;
}

}  // namespace sluice::shm
