#pragma once
#include <cstdint>

#include "intercept/driver/contexts.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/driver/process.hpp"

namespace sluice::intercept {

/// Whether any capture may be open. Saves a driver query for each launch while none is.
inline bool any_capture_open() noexcept {
  return g_process.captures.open.load(std::memory_order_relaxed) != 0;
}

/// Whether work given to the stream now is captured instead of run.
bool is_capturing(CUstream stream) noexcept;

/// Whether a query of the stream would break a capture: its own, or for the legacy stream, that of
/// any stream for which the legacy stream waits. Depends on the current context, as the stream
/// does.
bool query_breaks_capture(CUstream stream) noexcept;

/// From now on a capture may be open at any time: every launch asks the driver. For captures that
/// begin unseen, and for want of memory to note one.
void captures_are_unseen() noexcept;

/// Call after a successful begin by this thread.
void capture_begun(CUstream stream) noexcept;
/// Call after the driver's call that ends a capture, whatever that returned.
void capture_ended(CUstream stream) noexcept;

/// The captures that end when a stream, or a context (both null: unknown which one), is destroyed.
/// Ask before the driver's call: after the call, the handle may already belong to another stream or
/// context, which may capture.
struct EndingCaptures {
  CUstream stream = nullptr;
  ContextId context;
  std::uint64_t last = 0;  ///< The number of the last capture that has begun.
};
[[nodiscard]] EndingCaptures captures_of(CUstream stream) noexcept;
[[nodiscard]] EndingCaptures captures_of(const ContextId& context) noexcept;
/// Call after the stream or context was destroyed: nobody can end these captures any more.
void captures_abandoned(const EndingCaptures& ending) noexcept;

}  // namespace sluice::intercept
