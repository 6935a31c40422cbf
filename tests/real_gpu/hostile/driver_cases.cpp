// Cases that use the driver API only: they build with g++ and run on the simulated GPU, too (where
// sums mean nothing).
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <atomic>

#include "hostile.hpp"

namespace {

// mix(data, n, salt): data[i] = (data[i] * 1664525 + salt) ^ (.. >> 13), `rounds` times.
const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 data, .param .u32 n, .param .u32 salt, .param .u32 rounds) {
  .reg .pred %p;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [data];
  cvta.to.global.u64 %rd0, %rd0;
  ld.param.u32 %r0, [n];
  ld.param.u32 %r1, [salt];
  ld.param.u32 %r2, [rounds];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p, %r6, %r0;
  @%p bra DONE;
  mul.wide.u32 %rd1, %r6, 4;
  add.u64 %rd2, %rd0, %rd1;
  ld.global.u32 %r7, [%rd2];
LOOP:
  mad.lo.u32 %r7, %r7, 1664525, %r1;
  shr.u32 %r8, %r7, 13;
  xor.b32 %r7, %r7, %r8;
  sub.u32 %r2, %r2, 1;
  setp.gt.u32 %p, %r2, 0;
  @%p bra LOOP;
  st.global.u32 [%rd2], %r7;
DONE:
  ret;
}
)";

constexpr unsigned kN = 4096;

struct Kernel {
  CUmodule module = nullptr;
  CUfunction mix = nullptr;
  void load() {
    CU(cuModuleLoadData(&module, kPtx));
    CU(cuModuleGetFunction(&mix, module, "mix"));
  }
  void operator()(CUstream stream, CUdeviceptr data, unsigned salt, unsigned rounds = 4) const {
    unsigned n = kN;
    void* params[] = {&data, &n, &salt, &rounds};
    CU(cuLaunchKernel(mix, kN / 256, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
  }
};

CUdeviceptr make_data() {
  CUdeviceptr data = 0;
  CU(cuMemAlloc(&data, kN * 4));
  CU(cuMemsetD32(data, 7, kN));
  CU(cuStreamSynchronize(nullptr));  // other streams do not wait for it
  return data;
}
std::uint64_t sum_of(CUdeviceptr data, std::uint64_t h = 0xcbf29ce484222325u) {
  std::vector<unsigned> host(kN);
  CU(cuMemcpyDtoH(host.data(), data, kN * 4));
  return fnv(host.data(), kN * 4, h);
}

struct Primary {
  CUdevice device = 0;
  CUcontext context = nullptr;
  Primary() {
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
  }
};

}  // namespace

/// Driver API, one stream, back to back.
CASE(tiny_driver) {
  Primary gpu;
  Kernel mix;
  mix.load();
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  mix(s, data, 1);
  CU(cuCtxSynchronize());
  const int count = args.empty() ? 200000 : std::atoi(args[0].c_str());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    mix(s, data, static_cast<unsigned>(i));
    if (i % 1000 == 999) CU(cuStreamSynchronize(s));
  }
  CU(cuStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

/// A context is pushed and popped around each launch into the default stream.
CASE(pushpop) {
  Primary gpu;
  Kernel mix;
  mix.load();
  const CUdeviceptr data = make_data();
  mix(nullptr, data, 1);
  CU(cuCtxSynchronize());
  const int count = args.empty() ? 100000 : std::atoi(args[0].c_str());
  CUcontext popped;
  CU(cuCtxPopCurrent(&popped));
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    CU(cuCtxPushCurrent(gpu.context));
    mix(nullptr, data, static_cast<unsigned>(i));
    if (i % 500 == 499) CU(cuStreamSynchronize(nullptr));
    CU(cuCtxPopCurrent(&popped));
  }
  const double took = now_s() - begin;
  CU(cuCtxSetCurrent(gpu.context));
  return report(sum_of(data), count, took);
}

/// Eight contexts of its own, none of them primary; work goes round; half of them end in the
/// middle.
CASE(contexts) {
  CU(cuInit(0));
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  struct One {
    CUcontext context;
    Kernel mix;
    CUstream stream;
    CUdeviceptr data;
  };
  const auto make = [&](One& one) {
#if CUDA_VERSION >= 13000
    CU(cuCtxCreate(&one.context, nullptr, 0, device));
#else
    CU(cuCtxCreate(&one.context, 0, device));
#endif
    one.mix.load();
    CU(cuStreamCreate(&one.stream, CU_STREAM_NON_BLOCKING));
    one.data = make_data();
  };
  std::vector<One> all(6);
  for (auto& one : all) make(one);
  const double begin = now_s();
  std::uint64_t sum = 1;
  int launches = 0;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 2000; ++i) {
      One& one = all[static_cast<std::size_t>(i) % all.size()];
      CU(cuCtxSetCurrent(one.context));
      one.mix(i % 3 == 0 ? nullptr : one.stream, one.data, static_cast<unsigned>(i));
      if (i % 3 == 0) CU(cuStreamSynchronize(nullptr));
      if (i % 97 == 0) CU(cuCtxSynchronize());
      ++launches;
    }
    for (auto& one : all) {
      CU(cuCtxSetCurrent(one.context));
      CU(cuCtxSynchronize());
      sum = sum_of(one.data, sum);
    }
    for (std::size_t i = 0; i < 2; ++i) {  // the first one is where the board may be registered
      CU(cuCtxDestroy(all[i].context));
      make(all[i]);
    }
  }
  return report(sum, launches, now_s() - begin);
}

/// The primary context is released, so that it ends, and retained again.
CASE(primary) {
  CU(cuInit(0));
  std::uint64_t sum = 1;
  const double begin = now_s();
  int launches = 0;
  for (int round = 0; round < 6; ++round) {
    Primary gpu;
    Kernel mix;
    mix.load();
    CUstream s;
    CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr data = make_data();
    CUcontext again;
    CU(cuDevicePrimaryCtxRetain(&again, gpu.device));  // a second reference, given up early
    for (int i = 0; i < 3000; ++i, ++launches) {
      mix(i % 2 ? s : nullptr, data, static_cast<unsigned>(i));
      if (i % 2)
        CU(cuStreamSynchronize(s));
      else
        CU(cuStreamSynchronize(nullptr));
      if (i == 1000) CU(cuDevicePrimaryCtxRelease(gpu.device));
    }
    sum = sum_of(data, sum);
    CU(cuDevicePrimaryCtxRelease(gpu.device));
    CU(cuCtxSetCurrent(nullptr));
  }
  return report(sum, launches, now_s() - begin);
}

/// Two streams hand a token to each other by memory operations, without the host.
CASE(waitvalue) {
  Primary gpu;
  Kernel mix;
  mix.load();
  CUstream s[2];
  for (auto& each : s) CU(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  CUdeviceptr token = 0;
  CU(cuMemAlloc(&token, 8));
  CU(cuMemsetD32(token, 0, 2));
  CU(cuCtxSynchronize());
  const double begin = now_s();
  const int rounds = args.empty() ? 20000 : std::atoi(args[0].c_str());
  for (int i = 0; i < rounds; ++i) {
    for (unsigned half = 0; half < 2; ++half) {
      CU(cuStreamWaitValue32(s[half], token, static_cast<unsigned>(2 * i) + half,
                             CU_STREAM_WAIT_VALUE_EQ));
      mix(s[half], data, static_cast<unsigned>(2 * i) + half);
      CU(cuStreamWriteValue32(s[half], token, static_cast<unsigned>(2 * i) + half + 1, 0));
    }
    if (i % 50 == 49) CU(cuCtxSynchronize());
  }
  CU(cuCtxSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data), rounds, took);
}

/// Work is queued behind a value that the host writes only later, in one stream; a second stream
/// goes on, is made anew and destroyed meanwhile.
CASE(waitvalue_host) {
  Primary gpu;
  Kernel mix;
  mix.load();
  CUstream held;
  CU(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  const CUdeviceptr other = make_data();
  unsigned* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  *word = 0;
  CUdeviceptr seen = 0;
  CU(cuMemHostGetDevicePointer(&seen, word, 0));
  mix(held, data, 0);
  CU(cuCtxSynchronize());
  const double begin = now_s();
  const int rounds = args.empty() ? 150 : std::atoi(args[0].c_str());
  for (int i = 1; i <= rounds; ++i) {
    CU(cuStreamWaitValue32(held, seen, static_cast<unsigned>(i), CU_STREAM_WAIT_VALUE_GEQ));
    for (unsigned k = 0; k < 100; ++k) mix(held, data, k);
    CUstream fresh;
    CU(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
    for (unsigned k = 0; k < 20; ++k) mix(fresh, other, k);
    CU(cuStreamSynchronize(fresh));
    CUevent event;
    CU(cuEventCreate(&event, 0));
    CU(cuEventRecord(event, held));
    if (cuEventQuery(event) != CUDA_ERROR_NOT_READY) die("work behind an unwritten value has run");
    CU(cuStreamDestroy(fresh));
    __atomic_store_n(word, static_cast<unsigned>(i), __ATOMIC_SEQ_CST);
    CU(cuEventSynchronize(event));
    CU(cuEventDestroy(event));
  }
  const double took = now_s() - begin;
  return report(sum_of(data, sum_of(other)), rounds, took);
}

/// Green contexts: two halves of the GPU, with streams of their own; they end and are made again.
CASE(green) {
#if CUDA_VERSION >= 12040
  Primary gpu;
  CUdevResource all{};
  CU(cuDeviceGetDevResource(gpu.device, &all, CU_DEV_RESOURCE_TYPE_SM));
  std::uint64_t sum = 1;
  int launches = 0;
  const double begin = now_s();
  for (int round = 0; round < 6; ++round) {
    CUdevResource groups[2]{};
    CUdevResource rest{};
    unsigned count = 2;
    CU(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 32));
    struct Part {
      CUgreenCtx green;
      CUcontext context;
      CUstream stream;
      CUdeviceptr data;
      Kernel mix;
    } parts[2];
    for (int i = 0; i < 2; ++i) {
      CUdevResourceDesc desc;
      CU(cuDevResourceGenerateDesc(&desc, &groups[i], 1));
      CU(cuGreenCtxCreate(&parts[i].green, desc, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM));
      CU(cuCtxFromGreenCtx(&parts[i].context, parts[i].green));
      CU(cuCtxSetCurrent(parts[i].context));
      CU(cuGreenCtxStreamCreate(&parts[i].stream, parts[i].green, CU_STREAM_NON_BLOCKING, 0));
      parts[i].mix.load();
      parts[i].data = make_data();
    }
    for (int i = 0; i < 6000; ++i, ++launches) {
      auto& part = parts[i % 2];
      CU(cuCtxSetCurrent(part.context));
      part.mix(part.stream, part.data, static_cast<unsigned>(i));
      if (i % 50 > 47) CU(cuStreamSynchronize(part.stream));
    }
    for (auto& part : parts) {
      CU(cuCtxSetCurrent(part.context));
      CU(cuCtxSynchronize());
      sum = sum_of(part.data, sum);
      CU(cuMemFree(part.data));
      CU(cuStreamDestroy(part.stream));
      CU(cuCtxSetCurrent(gpu.context));
      CU(cuGreenCtxDestroy(part.green));
    }
  }
  return report(sum, launches, now_s() - begin);
#else
  die("no green contexts in this cuda.h");
#endif
}

/// Physical memory is made, mapped, used, unmapped and given back.
CASE(vmm) {
  Primary gpu;
  Kernel mix;
  mix.load();
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}};
  std::size_t size = 0;
  CU(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base = 0;
  CU(cuMemAddressReserve(&base, size * 16, 0, 0, 0));
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const double begin = now_s();
  std::uint64_t sum = 1;
  const int rounds = args.empty() ? 150 : std::atoi(args[0].c_str());
  for (int round = 0; round < rounds; ++round) {
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
    CU(cuCtxSynchronize());
    sum = sum_of(base + static_cast<std::size_t>(round % 16) * size, sum);
    CU(cuMemUnmap(base, size * 16));
    CU(cuMemRelease(again));
    for (std::size_t i = 0; i < 16; i += 2) CU(cuMemRelease(handles[i]));
  }
  return report(sum, rounds, now_s() - begin);
}

/// Code is loaded, launched and unloaded again and again, next to a kernel that stays.
CASE(modules) {
  Primary gpu;
  Kernel stays;
  stays.load();
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  const int rounds = args.empty() ? 300 : std::atoi(args[0].c_str());
  const double begin = now_s();
  for (int round = 0; round < rounds; ++round) {
    Kernel comes;
    comes.load();
    for (unsigned i = 0; i < 50; ++i) {
      comes(s, data, i, 40);
      stays(s, data, i, 40);
    }
    CU(cuStreamSynchronize(s));
    CU(cuModuleUnload(comes.module));
  }
  return report(sum_of(data), rounds, now_s() - begin);
}

/// The driver is found by dlopen and dlsym as ctypes does, and closed again; calls by every kind of
/// lookup.
CASE(dlopen) {
  std::uint64_t sum = 1;
  int launches = 0;
  const double begin = now_s();
  for (int round = 0; round < 8; ++round) {
    void* lib = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lib == nullptr) die(dlerror());
#define FIND(name) const auto p_##name = reinterpret_cast<decltype(&::name)>(dlsym(lib, #name))
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    const auto p_launch = reinterpret_cast<decltype(&::cuLaunchKernel)>(
        round % 2 ? dlsym(lib, "cuLaunchKernel") : dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
    void* by_address = nullptr;
    CU(cuGetProcAddress("cuLaunchKernelEx", &by_address, 12000, 0, nullptr));
    CU(p_cuInit(0));
    CUcontext context;
    CU(p_cuDevicePrimaryCtxRetain(&context, 0));
    CU(p_cuCtxSetCurrent(context));
    Kernel mix;
    mix.load();
    CUdeviceptr data = make_data();
    for (unsigned i = 0; i < 10000; ++i, ++launches) {
      unsigned n = kN, salt = i, rounds = 2;
      void* params[] = {&data, &n, &salt, &rounds};
      if (i % 2) {
        CU(p_launch(mix.mix, kN / 256, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
      } else {
        CUlaunchConfig config{};
        config.gridDimX = kN / 256, config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = 256, config.blockDimY = config.blockDimZ = 1;
        CU(reinterpret_cast<decltype(&::cuLaunchKernelEx)>(by_address)(&config, mix.mix, params,
                                                                       nullptr));
      }
      if (i % 500 == 0) CU(cuCtxSynchronize());
    }
    sum = sum_of(data, sum);
    CU(cuMemFree(data));
    dlclose(lib);
  }
  return report(sum, launches, now_s() - begin);
}

/// The program closes what it has not opened itself: sockets and shared memory.
CASE(closefds) {
  Primary gpu;
  Kernel mix;
  mix.load();
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  const double begin = now_s();
  int launches = 0, closed = 0;
  for (int round = 0; round < 8; ++round) {
    for (unsigned i = 0; i < 5000; ++i, ++launches) {
      mix(s, data, i);
      if (i % 100 == 99) CU(cuStreamSynchronize(s));
    }
    for (int fd = 3; fd < 256; ++fd) {
      char path[64], target[256] = {};
      std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
      if (readlink(path, target, sizeof target - 1) <= 0) continue;
      const std::string to = target;
      const bool ours = to.find("sluice") != std::string::npos || to.rfind("socket:", 0) == 0;
      if (!ours || to.find("simgpu") != std::string::npos || getenv("SLUICE_HOSTILE_SIM")) continue;
      close(fd);
      ++closed;
      // The number becomes a file of the program's own.
      if (open("/dev/null", O_RDONLY) < 0) die("open");
    }
    sleep_ms(60);
  }
  CU(cuStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data), launches, took, "closed=" + std::to_string(closed));
}

/// Timers interrupt every call a thousand times a second.
CASE(alarms) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);  // without SA_RESTART: calls return EINTR
  sigaction(SIGPROF, &action, nullptr);
  Primary gpu;
  const itimerval every{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, nullptr);
  setitimer(ITIMER_PROF, &every, nullptr);
  Kernel mix;
  mix.load();
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  const double begin = now_s();
  const int count = args.empty() ? 60000 : std::atoi(args[0].c_str());
  for (int i = 0; i < count; ++i) {
    mix(s, data, static_cast<unsigned>(i));
    if (i % 20 == 19) CU(cuStreamSynchronize(s));
  }
  const double took = now_s() - begin;
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  setitimer(ITIMER_PROF, &never, nullptr);
  return report(sum_of(data), count, took);
}

/// All threads share one processor: those of the program and those of Sluice.
CASE(onecpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
  Primary gpu;
  Kernel mix;
  mix.load();
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  const double begin = now_s();
  const int count = args.empty() ? 60000 : std::atoi(args[0].c_str());
  for (int i = 0; i < count; ++i) {
    mix(s, data, static_cast<unsigned>(i));
    if (i % 10 == 9) CU(cuStreamSynchronize(s));
  }
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

/// One step is a kernel and a wait for the whole context.
CASE(syncloop) {
  Primary gpu;
  Kernel mix;
  mix.load();
  const CUdeviceptr data = make_data();
  unsigned word = 0;
  CU(cuCtxSynchronize());
  const double begin = now_s();
  const int count = args.empty() ? 60000 : std::atoi(args[0].c_str());
  for (int i = 0; i < count; ++i) {
    mix(nullptr, data, static_cast<unsigned>(i));
    if (i % 3 == 0) CU(cuCtxSynchronize());
    if (i % 3 == 1) CU(cuMemcpyDtoH(&word, data, 4));
    if (i % 3 == 2) CU(cuStreamSynchronize(nullptr));
  }
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

/// 100 threads, each with its own default stream; all synchronise all the time.
CASE(threads100) {
  Primary gpu;
  Kernel mix;
  mix.load();
  const int count = args.empty() ? 600 : std::atoi(args[0].c_str());
  std::vector<CUdeviceptr> data(100);
  for (auto& each : data) each = make_data();
  CU(cuCtxSynchronize());
  const double begin = now_s();
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < data.size(); ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      for (int i = 0; i < count; ++i) {
        mix(CU_STREAM_PER_THREAD, data[t], static_cast<unsigned>(i));
        if (i % 2) CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const double took = now_s() - begin;
  std::uint64_t sum = 1;
  for (auto& each : data) sum = sum_of(each, sum);
  return report(sum, 100.0 * count, took);
}

/// Each request has a thread of its own.
CASE(threadchurn) {
  Primary gpu;
  Kernel mix;
  mix.load();
  const CUdeviceptr data = make_data();
  const int count = args.empty() ? 3000 : std::atoi(args[0].c_str());
  CU(cuCtxSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    std::thread([&] {
      CU(cuCtxSetCurrent(gpu.context));
      for (unsigned k = 0; k < 5; ++k) mix(CU_STREAM_PER_THREAD, data, k);
      CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }).join();
  }
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

/// Threads whose stacks are small.
CASE(smallstack) {
  Primary gpu;
  static Kernel mix;
  mix.load();
  static CUcontext context = gpu.context;
  static std::atomic<int> done{0};
  std::vector<pthread_t> threads(16);
  static std::vector<CUdeviceptr> data(threads.size());
  for (auto& each : data) each = make_data();
  CU(cuCtxSynchronize());
  const double begin = now_s();
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 96 << 10);
  for (std::size_t t = 0; t < threads.size(); ++t) {
    const auto body = [](void* index) -> void* {
      CU(cuCtxSetCurrent(context));
      CUstream s;
      CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
      for (unsigned i = 0; i < 3000; ++i) {
        mix(s, data[reinterpret_cast<std::size_t>(index)], i);
        if (i % 50 == 0) CU(cuStreamSynchronize(s));
      }
      CUgraph graph;
      CUgraphExec exec;
      CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      for (unsigned i = 0; i < 20; ++i) mix(s, data[reinterpret_cast<std::size_t>(index)], i);
      CU(cuStreamEndCapture(s, &graph));
      CU(cuGraphInstantiate(&exec, graph, 0));
      CU(cuGraphLaunch(exec, s));
      CU(cuStreamSynchronize(s));
      CU(cuStreamDestroy(s));
      done.fetch_add(1);
      return nullptr;
    };
    if (pthread_create(&threads[t], &attr, body, reinterpret_cast<void*>(t)) != 0)
      die("pthread_create");
  }
  for (auto& thread : threads) pthread_join(thread, nullptr);
  const double took = now_s() - begin;
  std::uint64_t sum = static_cast<std::uint64_t>(done.load());
  for (auto& each : data) sum = sum_of(each, sum);
  return report(sum, 3000.0 * static_cast<double>(threads.size()), took);
}

/// A critical process has work in its stream that waits for a word in the memory of a best-effort
/// process: the hold and the wait are a cycle. Without Sluice a round takes microseconds.
CASE(inversion_gpu) {
  Primary gpu;
  Kernel mix;
  mix.load();
  const bool child = args.size() > 2;
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const int rounds = 2;
  if (!child) {
    int to[2], from[2];
    make_pipe(to), make_pipe(from);
    CUdeviceptr words = 0;
    CU(cuMemAlloc(&words, 2 << 20));
    CU(cuMemsetD32(words, 0, 64));
    const CUdeviceptr data = make_data();
    CU(cuCtxSynchronize());
    const pid_t pid =
        spawn_self({"inversion_gpu", std::to_string(to[0]), std::to_string(from[1]), "child"},
                   {{"SLUICE_PRIORITY", "0"}});
    CUipcMemHandle handle;
    CU(cuIpcGetMemHandle(&handle, words));
    write_all(to[1], &handle, sizeof handle);
    char ready;
    read_all(from[0], &ready, 1);
    const double begin = now_s();
    for (unsigned i = 1; i <= rounds; ++i) {
      mix(s, data, i);
      CU(cuStreamWriteValue32(s, words, i, 0));                            // asks
      CU(cuStreamWaitValue32(s, words + 4, i, CU_STREAM_WAIT_VALUE_GEQ));  // waits for the answer
      mix(s, data, i);
      write_all(to[1], &i, sizeof i);
      CU(cuStreamSynchronize(s));
    }
    const double took = now_s() - begin;
    if (wait_for(pid) != 0) die("the child failed");
    return report(sum_of(data), rounds, took, "the critical program waits for the best-effort one");
  }
  CUipcMemHandle handle;
  read_all(std::atoi(args[0].c_str()), &handle, sizeof handle);
  CUdeviceptr words = 0;
  CU(cuIpcOpenMemHandle(&words, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  const CUdeviceptr data = make_data();
  mix(s, data, 0);
  CU(cuStreamSynchronize(s));
  write_all(std::atoi(args[1].c_str()), "r", 1);
  for (unsigned i = 1; i <= rounds; ++i) {
    unsigned round;
    read_all(std::atoi(args[0].c_str()), &round, sizeof round);
    CU(cuStreamWaitValue32(s, words, i, CU_STREAM_WAIT_VALUE_GEQ));
    for (unsigned k = 0; k < 20; ++k) mix(s, data, k, 4000);
    CU(cuStreamWriteValue32(s, words + 4, i, 0));
    CU(cuStreamSynchronize(s));
  }
  return 0;
}

/// A critical process that waits for the answer of a best-effort one in a pipe, with its own GPU
/// work done: nobody should be held.
CASE(inversion_pipe) {
  const bool child = args.size() > 2;
  const int rounds = 300;
  Primary gpu;
  Kernel mix;
  mix.load();
  CUstream s;
  CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = make_data();
  mix(s, data, 0);
  CU(cuStreamSynchronize(s));
  if (child) {
    const int in = std::atoi(args[0].c_str()), out = std::atoi(args[1].c_str());
    write_all(out, "r", 1);
    for (int i = 0; i < rounds; ++i) {
      unsigned word;
      read_all(in, &word, sizeof word);
      for (unsigned k = 0; k < 20; ++k) mix(s, data, word + k, 400);
      CU(cuStreamSynchronize(s));
      CU(cuMemcpyDtoH(&word, data, 4));
      write_all(out, &word, sizeof word);
    }
    return 0;
  }
  int to[2], from[2];
  make_pipe(to), make_pipe(from);
  const pid_t pid =
      spawn_self({"inversion_pipe", std::to_string(to[0]), std::to_string(from[1]), "child"},
                 {{"SLUICE_PRIORITY", "0"}});
  char ready;
  read_all(from[0], &ready, 1);
  const double begin = now_s();
  unsigned word = 5;
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < rounds; ++i) {
    for (unsigned k = 0; k < 10; ++k) mix(s, data, word + k, 100);
    // Every third round the answer is asked for while the own work still runs, without any
    // synchronising call before it.
    if (i % 3 != 0) CU(cuStreamSynchronize(s));
    write_all(to[1], &word, sizeof word);
    read_all(from[0], &word, sizeof word);
    CU(cuEventRecord(event, s));
    CU(cuEventSynchronize(event));
  }
  const double took = now_s() - begin;
  if (wait_for(pid) != 0) die("the child failed");
  return report(sum_of(data, word), rounds, took);
}

/// Starts without any environment: the preload is gone.
CASE(cleanenv) {
  const double begin = now_s();
  int done = 0;
  for (int i = 0; i < 2; ++i, ++done) {
    if (wait_for(spawn_self({"tiny_driver", "20000"}, {}, true)) != 0) die("the child failed");
  }
  return report(1, done, now_s() - begin);
}

/// A preloaded library of the program's own counts launches and allocations (libshim.so; see run).
CASE(shim) {
  const int done = case_tiny_driver(args);
  const auto count =
      reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "hostile_shim_launches"));
  if (count == nullptr) die("libshim.so is not preloaded");
  std::fprintf(stderr, "shim saw %lu launches\n", count());
  if (count() == 0) die("the other preloaded library saw no launch");
  return done;
}

/// The queue of one stream is full behind a value that is not written; meanwhile other streams
/// begin, work, capture and end. `late`: what took more than a second.
CASE(fullqueue) {
  Primary gpu;
  static Kernel mix;
  mix.load();
  static const CUdeviceptr data = make_data();
  const CUdeviceptr other = make_data();
  unsigned* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  *word = 0;
  static CUdeviceptr seen = 0;
  CU(cuMemHostGetDevicePointer(&seen, word, 0));
  static CUcontext context = gpu.context;
  CUstream side, warm;
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&warm, CU_STREAM_NON_BLOCKING));
  mix(side, other, 0);
  CU(cuCtxSynchronize());
  const int rounds = args.empty() ? 4 : std::atoi(args[0].c_str());
  double worst = 0;
  const char* worst_at = "";
  const double begin = now_s();
  for (int i = 1; i <= rounds; ++i) {
    static std::atomic<int> given;
    given = 0;
    CUstream fresh = nullptr;
    CU(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
    mix(fresh, other, 3);
    CU(cuStreamSynchronize(fresh));
    std::vector<CUstream> unused(16);
    for (CUstream& each : unused) CU(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
    std::thread filler([i] {
      CU(cuCtxSetCurrent(context));
      CU(cuStreamWaitValue32(CU_STREAM_PER_THREAD, seen, static_cast<unsigned>(i),
                             CU_STREAM_WAIT_VALUE_GEQ));
      for (unsigned k = 0; k < 2000; ++k, given = static_cast<int>(k))
        mix(CU_STREAM_PER_THREAD, data, k);
      CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    });
    std::atomic<bool> done{false};
    std::thread rescue([&] {  // so that it does not hang for good, with or without Sluice
      for (int k = 0; k < 800 && !done; ++k) sleep_ms(10);
      __atomic_store_n(word, static_cast<unsigned>(i), __ATOMIC_SEQ_CST);
    });
    sleep_ms(150);
    const auto timed = [&](const char* what, auto call) {
      const double from = now_s();
      call();
      if (now_s() - from > worst) worst = now_s() - from, worst_at = what;
    };
    for (CUstream each : unused) {  // their first launches
      sleep_ms(1);
      timed("launch", [&] { mix(each, other, 1); });
      CU(cuStreamSynchronize(each));
    }
    timed("synchronise", [&] { CU(cuStreamSynchronize(side)); });
    CUgraph graph;
    timed("begin capture",
          [&] { CU(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); });
    mix(side, other, 2);
    timed("end capture", [&] { CU(cuStreamEndCapture(side, &graph)); });
    CU(cuGraphDestroy(graph));
    done = true;  // a real driver blocks creating and destroying streams here
    rescue.join();
    filler.join();
    CU(cuStreamDestroy(fresh));
    for (CUstream each : unused) CU(cuStreamDestroy(each));
  }
  const double took = now_s() - begin;
  char note[96];
  std::snprintf(note, sizeof note, "worst_ms=%.0f in %s", worst * 1e3, worst_at);
  return report(sum_of(data, sum_of(other)), rounds, took, note);
}
