// A libcuda.so.1 whose calls return at once, so that a benchmark measures only the cost of Sluice.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "intercept/driver/entries.hpp"
#include "intercept/driver/machine.hpp"

namespace {

constinit thread_local int t_device = 1;

/// Sets the outputs that the interposer reads. All other calls only return success.
void fill(CUuuid* uuid) { std::memset(uuid->bytes, 1, sizeof(uuid->bytes)); }
void fill(int* device_or_attribute) { *device_or_attribute = t_device; }
/// A context is the number of its device.
void fill(CUcontext current) {
  t_device = static_cast<int>(reinterpret_cast<std::intptr_t>(current));
}
void fill(unsigned long long* id_or_address) { *id_or_address = 1; }
void fill(CUevent* event) { *event = reinterpret_cast<CUevent>(0x10); }
void fill(CUstreamCaptureStatus* status) { *status = CU_STREAM_CAPTURE_STATUS_NONE; }
template <class Argument>
void fill(Argument /*argument*/) {}

template <class Function>
struct Stub;

template <class... Args>
struct Stub<CUresult (*)(Args...)> {
  static CUresult call(Args... args) {
    (fill(args), ...);
    return CUDA_SUCCESS;
  }
};

}  // namespace

#define SLUICE_EXPORT(name)                                                        \
  extern "C" {                                                                     \
  __attribute__((visibility("hidden"), used)) decltype(&::name) null_slot_##name = \
      &Stub<decltype(&::name)>::call;                                              \
  }                                                                                \
  SLUICE_EXPORT_JUMP(#name, "null_slot_" #name)
#define SLUICE_HOOK(name, kind) SLUICE_EXPORT(name)
#define SLUICE_CALL(name) SLUICE_EXPORT(name)
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
