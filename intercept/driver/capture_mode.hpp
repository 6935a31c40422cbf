#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// While it lives, the calling thread may make calls that would break another thread's capture
/// (in the default mode, event queries and allocations of any thread do).
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
