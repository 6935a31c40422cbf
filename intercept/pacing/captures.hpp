#pragma once
#include <atomic>
#include <vector>

#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

extern constinit std::atomic<int> g_open_captures;

/// Saves the driver query while the process captures nothing.
inline bool any_capture_open() noexcept {
  return g_open_captures.load(std::memory_order_relaxed) != 0;
}

/// The same, for a thread that has time to look: without captures whose thread has ended, which
/// nobody can end any more.
[[nodiscard]] bool any_capture_lives() noexcept;

/// Whether work given to the stream now is recorded instead of run.
bool is_capturing(CUstream stream) noexcept;

/// After a successful begin, by this thread. In the relaxed mode any thread may end the capture.
void capture_begun(CUstream stream, CUstreamCaptureMode mode) noexcept;

/// What is known of the stream's capture before it is ended.
struct Ending {
  CUstreamCaptureStatus status;
  cuuint64_t id;
};
Ending capture_ending(CUstream stream) noexcept;

/// After the call, whatever it returned.
void capture_ended(const Ending& ending, CUstream stream) noexcept;

/// The captures that end with a stream, or a context (null: perhaps any), that is about to be
/// destroyed. Asked for before it is: at once its handle may be that of another one.
using CaptureIds = std::vector<cuuint64_t>;
[[nodiscard]] CaptureIds captures_of(CUstream stream) noexcept;
[[nodiscard]] CaptureIds captures_of(CUcontext context) noexcept;
/// It has been: nobody can end them any more.
void captures_abandoned(const CaptureIds& ids) noexcept;

}  // namespace sluice::intercept
