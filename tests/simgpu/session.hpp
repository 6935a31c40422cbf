// A session of its own for a test program, and the few calls every test begins with.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace sluice::simgpu::test {

// Sets where this process, and those it starts, find their simulated GPU: in a folder of its own,
// removed at the end. Make one before the first driver call.
class Session {
 public:
  Session() {
    std::string pattern = "/tmp/sluice-simgpu-test-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    setenv("SLUICE_SESSION", "test", 1);
    setenv("SLUICE_SIM_LOG", log().c_str(), 1);
  }
  ~Session() { std::filesystem::remove_all(folder_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] std::string folder() const { return folder_; }
  [[nodiscard]] std::string log() const { return folder_ + "/gpu.log"; }

 private:
  std::string folder_;
};

inline constexpr const char* kModule = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry sluice_spin(.param .u64 ns) { ret; }
.visible .entry other(.param .u64 x) { ret; }
)";

// The simulated GPU with a context and the spin kernel.
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
