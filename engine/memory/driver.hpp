#pragma once
#include <cuda.h>

#include <string_view>

/// Every entry of the driver that this folder uses, under the name that `cuda.h` gives it.
#define SLUICE_MEMORY_ENTRIES(ENTRY)   \
  ENTRY(cuInit)                        \
  ENTRY(cuDeviceGet)                   \
  ENTRY(cuDevicePrimaryCtxRetain)      \
  ENTRY(cuDevicePrimaryCtxRelease)     \
  ENTRY(cuCtxPushCurrent)              \
  ENTRY(cuCtxPopCurrent)               \
  ENTRY(cuMemGetInfo)                  \
  ENTRY(cuMemGetAllocationGranularity) \
  ENTRY(cuMemAddressReserve)           \
  ENTRY(cuMemAddressFree)              \
  ENTRY(cuMemCreate)                   \
  ENTRY(cuMemRelease)                  \
  ENTRY(cuMemMap)                      \
  ENTRY(cuMemUnmap)                    \
  ENTRY(cuMemSetAccess)                \
  ENTRY(cuMemAlloc)                    \
  ENTRY(cuMemFree)                     \
  ENTRY(cuMemHostAlloc)                \
  ENTRY(cuMemFreeHost)                 \
  ENTRY(cuMemcpyHtoDAsync)             \
  ENTRY(cuStreamCreate)                \
  ENTRY(cuStreamDestroy)               \
  ENTRY(cuStreamSynchronize)           \
  ENTRY(cuStreamWaitEvent)             \
  ENTRY(cuEventCreate)                 \
  ENTRY(cuEventDestroy)                \
  ENTRY(cuEventRecord)                 \
  ENTRY(cuEventQuery)                  \
  ENTRY(cuGetErrorName)

namespace sluice::engine {

/// The driver, as functions. A library that links the driver cannot be loaded on a machine without
/// one, and LibTorch's engine also runs there. Tests put in functions of their own.
struct MemoryDriver {
// Some names are macros for a newer version: then the member has the newer name.
#define SLUICE_MEMBER(entry) decltype(&::entry) entry = nullptr;
  SLUICE_MEMORY_ENTRIES(SLUICE_MEMBER)
#undef SLUICE_MEMBER

  /// The driver of this process, loaded by the first call. Throws base::RunError if it lacks an
  /// entry. Thread-safe.
  [[nodiscard]] static const MemoryDriver& loaded();

  /// Throws OutOfMemory, ContextLost, or base::RunError with the name of the call if `result` is
  /// an error.
  void check(CUresult result, std::string_view call) const;
};

}  // namespace sluice::engine

/// SLUICE_DRIVER(driver, cuStreamSynchronize(stream)): makes the call; throws as check() does.
#define SLUICE_DRIVER(driver, call) (driver).check((driver).call, #call)
