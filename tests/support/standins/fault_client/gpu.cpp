#include "gpu.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace sluice::test {
namespace {

// The simulated GPU knows the kernel by its name. A real GPU runs the code.
constexpr const char* kModule = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry sluice_spin(.param .u64 ns) {
  .reg .u64 %begin, %now, %length;
  .reg .pred %busy;
  ld.param.u64 %length, [ns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %busy, %now, %length;
  @%busy bra again;
  ret;
}
)";

Progress* map_progress(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* at = fd < 0 ? MAP_FAILED
                    : mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (at == MAP_FAILED) {
    std::printf("error cannot map %s\n", path.c_str());
    std::exit(3);
  }
  return static_cast<Progress*>(at);
}

CUdeviceptr address_of(std::atomic<std::uint64_t>& word) {
  CUdeviceptr address = 0;
  check(cuMemHostGetDevicePointer(&address, &word, 0), "cuMemHostGetDevicePointer");
  return address;
}

}  // namespace

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  // The process is in exit(), where a real driver refuses the other threads.
  if (result == CUDA_ERROR_DEINITIALIZED) {
    for (;;) pause();
  }
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "fault_client: %s: %s\n", call, name == nullptr ? "?" : name);
  std::printf("error %s: %s\n", call, name == nullptr ? "?" : name);
  std::fflush(stdout);
  std::_Exit(3);
}

Gpu::Gpu(const std::string& path) : progress_(map_progress(path)) {
  CUdevice device = 0;
  CUmodule module = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
  enter();
  check(cuModuleLoadData(&module, kModule), "cuModuleLoadData");
  check(cuModuleGetFunction(&spin_, module, "sluice_spin"), "cuModuleGetFunction");
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  check(cuMemHostRegister(progress_, sizeof(Progress), kFlags), "cuMemHostRegister");
}

void Gpu::enter() const { check(cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

CUstream Gpu::new_stream() {
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

CUresult Gpu::launch(CUstream stream, std::uint64_t us, unsigned blocks) const {
  std::uint64_t ns = us * 1000;
  void* arguments[] = {&ns};
  return cuLaunchKernel(spin_, blocks, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

void Gpu::stamp(CUstream stream, std::atomic<std::uint64_t>& word, std::uint64_t value) {
  check(cuStreamWriteValue64(stream, address_of(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
        "cuStreamWriteValue64");
}

void Gpu::hold(CUstream stream) const {
  check(cuStreamWaitValue64(stream, address_of(progress_->release), 1, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64");
}

}  // namespace sluice::test
