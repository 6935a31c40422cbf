// What the cases of the CUDA runtime share. In an unnamed namespace, because driver.hpp has the
// same names.
#pragma once
#include <cuda_runtime.h>

#include "../hostile.hpp"

inline void check(cudaError_t result, const char* file, int line, const char* call) {
  if (result != cudaSuccess) failed(file, line, call, cudaGetErrorString(result));
}

namespace {

constexpr unsigned long long kGiveUpNs = 4'000'000'000ull;

__device__ inline unsigned long long gpu_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
__device__ inline unsigned mix_one(unsigned x, unsigned salt) {
  x = x * 1664525u + salt;
  return x ^ (x >> 13);
}
[[maybe_unused]] static __global__ void mix(unsigned* data, unsigned n, unsigned salt,
                                            unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = data[i];
  for (unsigned r = 0; r < rounds; ++r) x = mix_one(x, salt);
  data[i] = x;
}
[[maybe_unused]] static __global__ void add_from(unsigned* to, const unsigned* from, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] += from[i] * 3;
}
/// Waits until *word >= want. Gives up after some seconds, so that nothing hangs for good.
[[maybe_unused]] static __global__ void await(volatile unsigned* word, unsigned want,
                                              unsigned* gave_up) {
  const unsigned long long begin = gpu_ns();
  while (*word < want) {
    if (gpu_ns() - begin > kGiveUpNs) {
      atomicAdd(gave_up, 1);
      return;
    }
    __nanosleep(100);
  }
}

/// Loads the code of a kernel, so that no launch has to.
template <class Kernel>
void load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  CU(cudaFuncGetAttributes(&attributes, kernel));
}
/// The kernel `mix` on all of the data.
inline void launch(cudaStream_t s, unsigned* data, unsigned salt, unsigned rounds = 4) {
  mix<<<kN / 256, 256, 0, s>>>(data, kN, salt, rounds);
  CU(cudaGetLastError());
}
/// The kernel `add_from` on all of the data.
inline void add(cudaStream_t s, unsigned* to, const unsigned* from) {
  add_from<<<kN / 256, 256, 0, s>>>(to, from, kN);
}

inline unsigned* make_data(unsigned value = 7) {
  unsigned* data = nullptr;
  CU(cudaMalloc(&data, kN * 4));
  std::vector<unsigned> host(kN, value);
  CU(cudaMemcpy(data, host.data(), kN * 4, cudaMemcpyHostToDevice));
  return data;
}
inline std::vector<unsigned*> make_data_of(int count) {
  std::vector<unsigned*> all(count);
  for (auto& each : all) each = make_data();
  return all;
}
inline std::uint64_t sum_of(const unsigned* data, std::uint64_t h = kFnvBegin) {
  std::vector<unsigned> host(kN);
  CU(cudaMemcpy(host.data(), data, kN * 4, cudaMemcpyDeviceToHost));
  return fnv(host.data(), kN * 4, h);
}
inline std::uint64_t sum_of(const std::vector<unsigned*>& all, std::uint64_t h = 1) {
  for (const unsigned* data : all) h = sum_of(data, h);
  return h;
}
inline unsigned read_word(const unsigned* on_device) {
  unsigned word = 0;
  CU(cudaMemcpy(&word, on_device, 4, cudaMemcpyDeviceToHost));
  return word;
}
/// Zeroed words that the host and the GPU see; their address on the GPU goes to `on_device`.
inline unsigned* make_mapped(unsigned** on_device) {
  unsigned* words = nullptr;
  CU(cudaHostAlloc(reinterpret_cast<void**>(&words), 4096, cudaHostAllocMapped));
  std::memset(words, 0, 4096);
  CU(cudaHostGetDevicePointer(reinterpret_cast<void**>(on_device), words, 0));
  return words;
}

inline cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t s;
  CU(cudaStreamCreateWithFlags(&s, flags));
  return s;
}
inline std::vector<cudaStream_t> make_streams(int count) {
  std::vector<cudaStream_t> all(count);
  for (auto& each : all) each = make_stream();
  return all;
}
inline cudaEvent_t make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t e;
  CU(cudaEventCreateWithFlags(&e, flags));
  return e;
}
inline void finish(cudaStream_t s) { CU(cudaStreamSynchronize(s)); }
inline void finish_all() { CU(cudaDeviceSynchronize()); }
/// The finish of timed(): waits for one stream.
inline auto finish_of(cudaStream_t s) {
  return [s] { finish(s); };
}

/// What `work` puts into the stream, as a graph.
template <class Work>
cudaGraph_t capture(cudaStream_t s, cudaStreamCaptureMode mode, Work work) {
  cudaGraph_t graph;
  CU(cudaStreamBeginCapture(s, mode));
  work();
  CU(cudaStreamEndCapture(s, &graph));
  return graph;
}
/// A graph of `kernels` launches, one after the other.
inline cudaGraph_t chain(cudaStream_t s, unsigned* data, int kernels, unsigned salt = 0,
                         cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  return capture(s, mode, [&] {
    for (int i = 0; i < kernels; ++i) launch(s, data, salt + i);
  });
}
inline cudaGraphExec_t instantiate(cudaGraph_t graph, unsigned long long flags = 0) {
  cudaGraphExec_t exec;
  CU(cudaGraphInstantiate(&exec, graph, flags));
  return exec;
}

}  // namespace
