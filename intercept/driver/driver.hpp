#pragma once
#include <cstdint>
#include <optional>

#include "intercept/driver/entries.hpp"
#include "intercept/driver/process.hpp"

/// The real driver behind the hooks.
namespace sluice::intercept {

/// Finds the real driver. With `load`, loads it if the program has not done so. Thread-safe; does
/// nothing after the first success.
bool resolve_driver(bool load) noexcept;

/// The real driver, for code that runs inside a hook. Loads it if necessary.
inline const Driver& driver() noexcept {
  if (!g_process.driver_ready.load(std::memory_order_acquire)) [[unlikely]] {
    resolve_driver(true);
  }
  return g_process.driver;
}

/// The first entry of calls.def that this driver is too old to have, or null. A process stays
/// unattached unless the driver has all of them. Hooks that may run before the attach check each
/// entry that they call.
const char* missing_call() noexcept;

/// The name of a kernel, or "?" if the driver does not know it.
const char* kernel_name(CUfunction function) noexcept;

/// The context of the calling thread; null if there is none.
CUcontext current_context() noexcept;
/// Whether the handle means a default stream: which one depends on the calling thread.
inline bool is_default_stream(CUstream stream) noexcept {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}
/// The context of a stream; the calling thread's for a default stream, or one that is not known.
CUcontext context_of(CUstream stream) noexcept;
/// The device of the calling thread's context, or of a given one; -1 if there is none.
CUdevice current_device() noexcept;
CUdevice device_of(CUcontext context) noexcept;

/// What a memory pool has taken from its device. Nothing if the driver does not say.
std::optional<std::uint64_t> reserved_by(CUmemoryPool pool) noexcept;

}  // namespace sluice::intercept
