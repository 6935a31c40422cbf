// The simplest program on a GPU. It obeys the lines of stdin and answers each with `ok`, or with
// the driver's error. It knows nothing of Sluice.
//   launch NS     one kernel of that length on the default stream
//   sync          waits for the GPU
//   children      whether this process has any child (`none` or `some`)
#include <cuda.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <string>

namespace {

constexpr const char* kModule = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry sluice_spin(.param .u64 ns) { ret; }
)";

void answer(CUresult result) {
  if (result == CUDA_SUCCESS) {
    std::cout << "ok" << std::endl;
  } else {
    std::cout << "error " << static_cast<int>(result) << std::endl;
  }
}

CUresult open_gpu(CUfunction& kernel) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) result = cuModuleLoadData(&module, kModule);
  if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&kernel, module, "sluice_spin");
  return result;
}

}  // namespace

int main() {
  CUfunction kernel = nullptr;
  answer(open_gpu(kernel));
  for (std::string word; std::cin >> word;) {
    if (word == "launch") {
      std::uint64_t ns = 0;
      std::cin >> ns;
      void* arguments[] = {&ns};
      answer(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    } else if (word == "sync") {
      answer(cuCtxSynchronize());
    } else if (word == "children") {
      const bool none = waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
      std::cout << (none ? "none" : "some") << std::endl;
    }
  }
}
