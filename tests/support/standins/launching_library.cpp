// A library that launches as PyTorch's libraries do: by a call, and by looking the entry up.
#include <cuda.h>
#include <dlfcn.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT CUresult launch_by_call() {
  return cuLaunchKernel(reinterpret_cast<CUfunction>(0x10), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                        nullptr);
}

EXPORT CUresult launch_by_lookup() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(driver, "cuLaunchKernel"));
  return launch(reinterpret_cast<CUfunction>(0x10), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}
