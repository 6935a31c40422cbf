#pragma once
// Declares every version and every per-thread form of the driver's entries under its own name.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#undef __CUDA_API_VERSION_INTERNAL

#include <array>
#include <cstdint>
#include <string_view>

#if CUDA_VERSION < 12040
#error "Sluice needs the headers of CUDA 12.4 or later (cuStreamBeginCaptureToGraph)"
#endif

/// Of the simulated GPU only (simgpu/driver/context_calls.cpp).
extern "C" CUresult sluice_simgpu_set_slice(CUdevice device, std::uint64_t us);

/// The entries of the driver: those that we hook and those that we call.
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

/// Whether a driver entry of this name gives the GPU work: also one that a newer driver has and
/// this cuda.h has not. No per-thread form or version is left out.
[[nodiscard]] constexpr bool gives_work(std::string_view name) noexcept {
  return (name.starts_with("cuLaunch") || name.starts_with("cuGraphLaunch")) &&
         !name.starts_with("cuLaunchHostFunc");
}

/// Whether the hooks have an entry of exactly this name.
[[nodiscard]] constexpr bool is_hooked(std::string_view name) noexcept {
  for (const std::string_view hooked : kEntryNames) {
    if (hooked == name) return true;
  }
  return false;
}

/// What a hook does; hooks.def explains each kind.
enum class Kind {
  kLaunch,
  kCopyIn,
  kSync,
  kWait,
  kRecord,
  kCapture,
  kGraph,
  kRetain,
  kCurrent,
  kEndContext,
  kEndStream,
  kReleasePrimary,
  kResetPrimary,
  kUnload,
  kMemory,
  kConnect,
  kMemoryInfo,
  kLookup,
};
/// Selects the hook of a kind.
template <Kind kind>
struct Of {};

/// The stream that an entry means by a handle. Stream 0 of a per-thread entry is the thread's own
/// default stream; our own calls name that stream explicitly.
template <Entry entry>
CUstream named(CUstream stream) noexcept {
  constexpr std::string_view kName = kEntryNames[static_cast<std::size_t>(entry)];
  constexpr bool kPerThread = kName.ends_with("_ptsz") || kName.ends_with("_ptds");
  return kPerThread && stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

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
#define SLUICE_OPTIONAL_CALL(name) SLUICE_CALL(name)
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#undef SLUICE_CALL
#undef SLUICE_HOOK
  decltype(&::sluice_simgpu_set_slice) simgpu_set_slice = nullptr;
};

}  // namespace sluice::intercept
