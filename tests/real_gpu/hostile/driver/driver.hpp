// What the cases of the driver API share. Their files build with g++ and run on the simulated GPU,
// too, where sums mean nothing. In an unnamed namespace, because runtime.cuh has the same names.
#pragma once
#include "../hostile.hpp"

namespace {

// mix(data, n, salt, rounds): x = x * 1664525 + salt; x ^= x >> 13, `rounds` times for each word.
inline const char* const kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 data, .param .u32 n, .param .u32 salt, .param .u32 rounds) {
  .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [data];  cvta.to.global.u64 %rd0, %rd0;
  ld.param.u32 %r0, [n];  ld.param.u32 %r1, [salt];  ld.param.u32 %r2, [rounds];
  mov.u32 %r3, %ctaid.x;  mov.u32 %r4, %ntid.x;  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p, %r6, %r0;
  @%p ret;
  mul.wide.u32 %rd1, %r6, 4;  add.u64 %rd2, %rd0, %rd1;
  ld.global.u32 %r7, [%rd2];
LOOP:
  mad.lo.u32 %r7, %r7, 1664525, %r1;  shr.u32 %r8, %r7, 13;  xor.b32 %r7, %r7, %r8;
  sub.u32 %r2, %r2, 1;  setp.gt.u32 %p, %r2, 0;
  @%p bra LOOP;
  st.global.u32 [%rd2], %r7;
  ret;
}
)";

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

/// The kernel, loaded into the current context.
struct Kernel {
  CUmodule module = nullptr;
  CUfunction mix = nullptr;
  Kernel() {
    CU(cuModuleLoadData(&module, kPtx));
    CU(cuModuleGetFunction(&mix, module, "mix"));
  }
  void operator()(CUstream stream, CUdeviceptr data, unsigned salt, unsigned rounds = 4) const {
    unsigned n = kN;
    void* params[] = {&data, &n, &salt, &rounds};
    CU(cuLaunchKernel(mix, kN / 256, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
  }
};

inline CUstream make_stream() {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}
inline void finish(CUstream stream) { CU(cuStreamSynchronize(stream)); }
inline void finish_all() { CU(cuCtxSynchronize()); }

inline CUdeviceptr make_data() {
  CUdeviceptr data = 0;
  CU(cuMemAlloc(&data, kN * 4));
  CU(cuMemsetD32(data, 7, kN));
  finish(nullptr);  // other streams do not wait for it
  return data;
}
inline std::uint64_t sum_of(CUdeviceptr data, std::uint64_t h = kFnvBegin) {
  std::vector<unsigned> host(kN);
  CU(cuMemcpyDtoH(host.data(), data, kN * 4));
  return fnv(host.data(), kN * 4, h);
}
inline std::uint64_t sum_of(const std::vector<CUdeviceptr>& all, std::uint64_t h) {
  for (const CUdeviceptr data : all) h = sum_of(data, h);
  return h;
}

/// What most cases begin with, made in this order.
struct Work {
  Primary gpu;
  Kernel mix;
  CUstream stream = make_stream();
  CUdeviceptr data = make_data();
};

/// A word that the host writes and the GPU reads.
struct MappedWord {
  unsigned* host = nullptr;
  CUdeviceptr seen = 0;
  MappedWord() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    set(0);
    CU(cuMemHostGetDevicePointer(&seen, host, 0));
  }
  void set(unsigned value) const { __atomic_store_n(host, value, __ATOMIC_SEQ_CST); }
};

}  // namespace
