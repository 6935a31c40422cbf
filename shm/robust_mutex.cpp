#include "shm/robust_mutex.hpp"

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

RobustMutex::Found RobustMutex::probe() noexcept {
  const int result = pthread_mutex_trylock(&mutex_);
  if (result == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  if (result == 0 || result == EOWNERDEAD) pthread_mutex_unlock(&mutex_);
  if (result == EOWNERDEAD) return Found::kOwnerDied;
  return result == 0 ? Found::kFree : Found::kHeld;
}

}  // namespace sluice::shm
