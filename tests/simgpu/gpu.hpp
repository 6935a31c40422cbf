// The calls with which every test begins.
#pragma once
#define CUDA_ENABLE_DEPRECATED  // a program of CUDA 3 is tried, too
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace sluice::simgpu::test {

inline constexpr const char* kModule = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry sluice_spin(.param .u64 ns) { ret; }
.visible .entry other(.param .u64 x) { ret; }
)";

/// The simulated GPU with a context and the spin kernel.
class Gpu {
 public:
  Gpu() {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleLoadData(&module, kModule), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&spin, module, "sluice_spin"), CUDA_SUCCESS);
  }
  ~Gpu() {
    cuModuleUnload(module);
    cuDevicePrimaryCtxRelease(0);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUresult launch(CUstream stream, std::uint64_t ns) const {
    void* arguments[] = {&ns};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
};

}  // namespace sluice::simgpu::test
