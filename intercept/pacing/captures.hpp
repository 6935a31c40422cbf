#pragma once
#include <vector>

#include "intercept/driver/driver.hpp"
#include "intercept/driver/process.hpp"

namespace sluice::intercept {

/// Whether any capture may be open. Saves a driver query for each launch while none is.
inline bool any_capture_open() noexcept {
  return g_process.open_captures.load(std::memory_order_relaxed) != 0;
}

/// The same, but first forgets captures that nobody can end any more because their thread has
/// ended. Makes a system call for each capture.
[[nodiscard]] bool any_capture_lives() noexcept;

/// Whether work given to the stream now is captured instead of run.
bool is_capturing(CUstream stream) noexcept;

/// Call after a successful begin by this thread. In the relaxed mode any thread may end the
/// capture.
void capture_begun(CUstream stream, CUstreamCaptureMode mode) noexcept;

/// The state of a stream's capture before the call that ends it.
struct Ending {
  CUstreamCaptureStatus status;
  cuuint64_t id;
};
Ending capture_ending(CUstream stream) noexcept;

/// Call after the driver's call, whatever that returned.
void capture_ended(const Ending& ending, CUstream stream) noexcept;

/// The captures that end when a stream, or a context (null: unknown which one), is destroyed. Ask
/// before the driver's call: after the call, the handle may already belong to another stream or
/// context.
using CaptureIds = std::vector<cuuint64_t>;
[[nodiscard]] CaptureIds captures_of(CUstream stream) noexcept;
[[nodiscard]] CaptureIds captures_of(CUcontext context) noexcept;
/// Call after the stream or context was destroyed: nobody can end these captures any more.
void captures_abandoned(const CaptureIds& ids) noexcept;

}  // namespace sluice::intercept
