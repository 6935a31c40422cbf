#pragma once
#include <pthread.h>

namespace sluice::intercept {

/// While it lives the calling thread is not cancelled: to be, inside one of our functions, would
/// end the program instead of the thread, because they are noexcept.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace sluice::intercept
