#pragma once
#include <array>
#include <atomic>
#include <string_view>

#include "intercept/driver/cuda_driver.hpp"

/// The real driver behind the hooks.
namespace sluice::intercept {

/// Index of a hooked entry: the order of hooks.def.
enum class Entry : unsigned {
#define SLUICE_HOOK(name, kind) name,
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
  kCount,
};
inline constexpr unsigned kEntries = static_cast<unsigned>(Entry::kCount);

inline constexpr std::array<std::string_view, kEntries> kEntryNames{
#define SLUICE_HOOK(name, kind) #name,
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
};

/// What a hook does; hooks.def explains each kind.
enum class Kind {
  kLaunch,
  kCopyIn,
  kSync,
  kCapture,
  kGraph,
  kRetain,
  kCurrent,
  kEndContext,
  kEndStream,
  kReleasePrimary,
  kResetPrimary,
  kUnload,
  kLookup,
};

/// Stands for a hooked entry that this driver is too old to have.
template <class Function>
struct Missing;
template <class... Args>
struct Missing<CUresult (*)(Args...)> {
  static CUresult call(Args... /*arguments*/) { return CUDA_ERROR_NOT_SUPPORTED; }
};

/// Addresses in the real libcuda.so.1. Entries that we only call ourselves are null if this driver
/// is too old to have them.
struct Driver {
#define SLUICE_HOOK(name, kind) decltype(&::name) name = &Missing<decltype(&::name)>::call;
#define SLUICE_CALL(name) decltype(&::name) name = nullptr;
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#include "intercept/driver/optional_calls.def"
#undef SLUICE_CALL
#undef SLUICE_HOOK
};

extern constinit Driver g_driver;
extern constinit std::atomic<bool> g_driver_ready;

/// Finds the real driver. With `load`, loads it if the program has not done so. Thread-safe; does
/// nothing after the first success.
bool resolve_driver(bool load) noexcept;

/// The real driver, for code that runs inside a hook. Loads it if necessary.
inline const Driver& driver() noexcept {
  if (!g_driver_ready.load(std::memory_order_acquire)) [[unlikely]] {
    resolve_driver(true);
  }
  return g_driver;
}

/// The first entry of calls.def that this driver is too old to have, or null. A process stays
/// unattached unless the driver has all of them. Hooks that may run before the attach check each
/// entry that they call.
const char* missing_call() noexcept;

/// The name of a kernel, or "?" if the driver does not know it.
const char* kernel_name(CUfunction function) noexcept;

/// The context of the calling thread; null if there is none.
CUcontext current_context() noexcept;
/// The device of the calling thread's context, or of a given one; -1 if there is none.
CUdevice current_device() noexcept;
CUdevice device_of(CUcontext context) noexcept;

}  // namespace sluice::intercept
