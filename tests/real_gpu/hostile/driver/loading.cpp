// Code, physical memory and the driver itself, loaded and unloaded again and again.
#include <dlfcn.h>

#include "driver.hpp"

/// Code is loaded, launched and unloaded again and again, next to a kernel that stays.
CASE(modules) {
  const auto [gpu, stays, s, data] = Work();
  const Run run = timed(count_of(args, 2500), [&](int) {
    Kernel comes;
    for (unsigned i = 0; i < 50; ++i) {
      comes(s, data, i, 40);
      stays(s, data, i, 40);
    }
    finish(s);
    CU(cuModuleUnload(comes.module));
  });
  return report(sum_of(data), run);
}

/// Physical memory is made, mapped, used, unmapped and given back.
CASE(vmm) {
  Primary gpu;
  Kernel mix;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}};
  std::size_t size = 0;
  CU(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base = 0;
  CU(cuMemAddressReserve(&base, size * 16, 0, 0, 0));
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  std::uint64_t sum = 1;
  const Run run = timed(count_of(args, 150), [&](int round) {
    std::vector<CUmemGenericAllocationHandle> handles(16);
    for (std::size_t i = 0; i < 16; ++i) {
      CU(cuMemCreate(&handles[i], size, &prop, 0));
      CU(cuMemMap(base + i * size, size, 0, handles[i], 0));
      if (i % 2) CU(cuMemRelease(handles[i]));  // the mapping keeps it
    }
    CU(cuMemSetAccess(base, size * 16, &access, 1));
    for (std::size_t i = 0; i < 16; ++i) {
      CU(cuMemsetD32(base + i * size, static_cast<unsigned>(i), kN));
      for (unsigned k = 0; k < 4; ++k) mix(nullptr, base + i * size, k);
    }
    CUmemGenericAllocationHandle again;
    CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base + size)));
    finish_all();
    sum = sum_of(base + static_cast<std::size_t>(round % 16) * size, sum);
    CU(cuMemUnmap(base, size * 16));
    CU(cuMemRelease(again));
    for (std::size_t i = 0; i < 16; i += 2) CU(cuMemRelease(handles[i]));
  });
  return report(sum, run);
}

/// The driver is found by dlopen and dlsym as ctypes does, and closed again; calls by every kind of
/// lookup.
CASE(dlopen) {
  std::uint64_t sum = 1;
  const Run run = timed(8, [&](int round) {
    void* lib = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lib == nullptr) die(dlerror());
#define FIND(name, in) const auto p_##name = reinterpret_cast<decltype(&::name)>(dlsym(in, #name))
    FIND(cuInit, lib);
    FIND(cuDevicePrimaryCtxRetain, lib);
    FIND(cuCtxSetCurrent, lib);
    FIND(cuLaunchKernel, round % 2 ? lib : RTLD_DEFAULT);
    void* by_address = nullptr;
    CU(cuGetProcAddress("cuLaunchKernelEx", &by_address, 12000, 0, nullptr));
    CU(p_cuInit(0));
    CUcontext context;
    CU(p_cuDevicePrimaryCtxRetain(&context, 0));
    CU(p_cuCtxSetCurrent(context));
    Kernel mix;
    CUdeviceptr data = make_data();
    for (unsigned i = 0; i < 10000; ++i) {
      unsigned n = kN, salt = i, rounds = 2;
      void* params[] = {&data, &n, &salt, &rounds};
      if (i % 2) {
        CU(p_cuLaunchKernel(mix.mix, kN / 256, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
      } else {
        CUlaunchConfig config{};
        config.gridDimX = kN / 256, config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = 256, config.blockDimY = config.blockDimZ = 1;
        CU(reinterpret_cast<decltype(&::cuLaunchKernelEx)>(by_address)(&config, mix.mix, params,
                                                                       nullptr));
      }
      if (i % 500 == 0) finish_all();
    }
    sum = sum_of(data, sum);
    CU(cuMemFree(data));
    dlclose(lib);
  });
  return report(sum, {8 * 10000, run.seconds});
}
