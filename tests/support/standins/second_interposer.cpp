// Another preloaded tool that wraps the driver as tracers do. It finds the next one by RTLD_NEXT.
#include "tests/support/standins/second_interposer.hpp"

#include <dlfcn.h>

#include "intercept/driver/entries.hpp"

#define SLUICE_VISIBLE __attribute__((visibility("default")))

static int g_launches = 0;

extern "C" SLUICE_VISIBLE int second_launches() { return g_launches; }

extern "C" SLUICE_VISIBLE void* second_next(const char* name) {
  void* volatile found = dlsym(RTLD_NEXT, name);  // volatile: a tail call would ask for our caller
  return found;
}

extern "C" SLUICE_VISIBLE CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy,
                                                  unsigned gz, unsigned bx, unsigned by,
                                                  unsigned bz, unsigned shared, CUstream stream,
                                                  void** params, void** extra) {
  static int depth = 0;
  if (++depth > 1) return CUDA_ERROR_UNKNOWN;  // it found itself
  ++g_launches;
  const auto next = reinterpret_cast<decltype(&::cuLaunchKernel)>(second_next("cuLaunchKernel"));
  const CUresult result = next == nullptr
                              ? CUDA_ERROR_NOT_FOUND
                              : next(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
  --depth;
  return result;
}
