// Memory of every kind: stream-ordered, pinned, registered, managed.
#include "runtime.cuh"

/// Stream-ordered allocations of changing sizes in four streams.
CASE(pool) {
  cudaMemPool_t pool;
  CU(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t keep = 1ull << 30;
  CU(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  const auto s = make_streams(4);
  unsigned* data = make_data();
  finish_all();
  const Run run = timed(count_of(args, 160000), finish_all, [&](int i) {
    cudaStream_t in = s[i % 4];
    unsigned* memory = nullptr;
    CU(cudaMallocAsync(reinterpret_cast<void**>(&memory), (kN * 4) << (i % 7), in));
    launch(in, memory, i, 1);
    CU(cudaFreeAsync(memory, in));
    if (i % 500 == 499) {
      launch(s[0], data, i);
      finish(in);
    }
    if (i % 20000 == 19999) CU(cudaMemPoolTrimTo(pool, 0));
  });
  return report(sum_of(data), run);
}

/// Much pinned memory, registered and mapped, while kernels read it.
CASE(pinned) {
  const std::size_t bytes = 2ull << 30;
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  const Run run = timed(2, [&](int) {
    void* pinned = nullptr;
    CU(cudaHostAlloc(&pinned, bytes, cudaHostAllocMapped));
    void* own =
        mmap(nullptr, bytes / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU(cudaHostRegister(own, bytes / 4, cudaHostRegisterMapped));
    unsigned *a, *b;
    CU(cudaHostGetDevicePointer(reinterpret_cast<void**>(&a), pinned, 0));
    CU(cudaHostGetDevicePointer(reinterpret_cast<void**>(&b), own, 0));
    for (int i = 0; i < 300; ++i) {
      launch(s, a + i * kN, i);
      launch(s, b + i * kN, i);
      add(s, data, a + i * kN);
      add(s, data, b + i * kN);
    }
    finish(s);
    std::memset(pinned, 0, 300 * kN * 4);
    CU(cudaHostUnregister(own));
    CU(cudaFreeHost(pinned));
    munmap(own, bytes / 4);
  });
  return report(sum_of(data), run);
}

/// Managed memory, touched by host and GPU in turn.
CASE(managed) {
  const std::size_t count = 16 << 20;
  unsigned* data = nullptr;
  CU(cudaMallocManaged(&data, count * 4));
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<unsigned>(i);
  cudaStream_t s = make_stream();
  std::uint64_t sum = 1;
  const Run run = timed(count_of(args, 20), [&](int round) {
    mix<<<count / 256, 256, 0, s>>>(data, count, round, 4);
    finish(s);
    for (std::size_t i = 0; i < count; i += 1024) sum = sum * 31 + data[i]++;
  });
  return report(sum, run);
}
