#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// While an object of this class lives, the calling thread may make driver calls that would
/// otherwise break a capture. In the default capture mode, an event query or an allocation by any
/// thread breaks the captures of all threads.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept {
    if (driver().cuThreadExchangeStreamCaptureMode != nullptr) {
      driver().cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace sluice::intercept
