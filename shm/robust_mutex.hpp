#pragma once
#include <pthread.h>

namespace sluice::shm {

/// Proof of life. A client's watcher thread holds the mutex for as long as its process lives; the
/// kernel releases it within 0.1 ms of a SIGKILL, and on exec, whereas a pidfd or a socket tells
/// of the death only after the memory is torn down (69 ms at 1 GiB, measured on one H200 host).
///
/// Lies in shared memory: plain data, made valid by initialise(), never destroyed.
class RobustMutex {
 public:
  enum class Found { kHeld, kOwnerDied, kFree };

  /// For memory that nobody else uses yet.
  void initialise() noexcept;

  /// Takes the mutex for the calling thread. False if another thread holds it.
  bool take() noexcept;

  /// For its holder.
  void release() noexcept;

  /// Says whether somebody holds the mutex, and leaves it as usable as before: what a dead owner
  /// left is recovered, so that the answer is kOwnerDied once and kFree from then on.
  Found probe() noexcept;

 private:
  pthread_mutex_t mutex_;
};

}  // namespace sluice::shm
