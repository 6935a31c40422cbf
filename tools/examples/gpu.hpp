#pragma once
#include <cuda.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.hpp"

/// What the example programs do on a GPU.
namespace sluice::tools {

// The simulated GPU takes the duration of a kernel named sluice_spin from its first argument. On a
// real GPU the kernel counts cycles.
inline constexpr const char* kSpinModule = R"(.version 6.0
.target sm_70
.address_size 64
.visible .entry sluice_spin(.param .u64 duration_ns, .param .u64 cycles) {
  .reg .pred %p;
  .reg .b64 %start, %now, %limit;
  mov.u64 %start, %clock64;
  ld.param.u64 %limit, [cycles];
SPIN:
  mov.u64 %now, %clock64;
  sub.s64 %now, %now, %start;
  setp.lt.s64 %p, %now, %limit;
  @%p bra SPIN;
  ret;
}
)";

inline void require(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw base::RunError(std::string(call) + ": " + (name != nullptr ? name : "error"));
}
#define SLUICE_REQUIRE(call) require(call, #call)

/// The first GPU, with a kernel that keeps it busy for a given time.
class Gpu {
 public:
  Gpu() {
    SLUICE_REQUIRE(cuInit(0));
    SLUICE_REQUIRE(cuDevicePrimaryCtxRetain(&context_, 0));
    SLUICE_REQUIRE(cuCtxSetCurrent(context_));
    SLUICE_REQUIRE(cuModuleLoadData(&module_, kSpinModule));
    SLUICE_REQUIRE(cuModuleGetFunction(&spin_, module_, "sluice_spin"));
    SLUICE_REQUIRE(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    SLUICE_REQUIRE(cuDeviceGetName(name_.data(), static_cast<int>(name_.size()), 0));
    int khz = 0;
    if (cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0) == CUDA_SUCCESS && khz > 0) {
      cycles_per_ns_ = khz / 1e6;
    }
    const char* scale = std::strstr(name_.data(), "(scale ");
    if (scale != nullptr) time_scale_ = std::atof(scale + std::strlen("(scale "));
  }

  void launch(std::uint64_t ns) const { SLUICE_REQUIRE(try_launch(ns)); }
  /// The same, without an exception.
  [[nodiscard]] CUresult try_launch(std::uint64_t ns) const {
    auto cycles = static_cast<std::uint64_t>(static_cast<double>(ns) * cycles_per_ns_);
    std::array<void*, 2> arguments{&ns, &cycles};
    return cuLaunchKernel(spin_, 1, 1, 1, 32, 1, 1, 0, stream_, arguments.data(), nullptr);
  }
  void wait() const { SLUICE_REQUIRE(cuStreamSynchronize(stream_)); }
  [[nodiscard]] static CUevent make_event() {
    CUevent event = nullptr;
    SLUICE_REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
  }
  void record(CUevent event) const { SLUICE_REQUIRE(cuEventRecord(event, stream_)); }
  static void wait(CUevent event) { SLUICE_REQUIRE(cuEventSynchronize(event)); }
  [[nodiscard]] const char* name() const { return name_.data(); }
  /// Real time divided by GPU time: 1 on a real GPU.
  [[nodiscard]] double time_scale() const { return time_scale_; }

 private:
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<char, 256> name_{};
  double cycles_per_ns_ = 1;
  double time_scale_ = 1;
};

}  // namespace sluice::tools
