// Runs a CUDA kernel of a pack on this CPU: one fiber per thread, block after block. Slow, and
// blind to races, but it shows whether launch dimensions, arguments and scratch buffers belong to
// the kernel.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <vector>

struct Dim3 {
  unsigned x, y, z;
};
struct float2 {
  float x, y;
};
struct float3 {
  float x, y, z;
};
struct float4 {
  float x, y, z, w;
};
struct int2 {
  int x, y;
};
struct int3 {
  int x, y, z;
};
struct int4 {
  int x, y, z, w;
};
typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float __int_as_float(int bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
T max(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
T min(T a, T b) {
  return a < b ? a : b;
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)

namespace emulation {
inline Dim3 block, thread;
inline ucontext_t scheduler;
inline std::vector<ucontext_t> fibers;
inline std::vector<bool> ended;
inline std::vector<uint64_t> arrived;  // barriers that a thread has reached
inline std::vector<uint32_t> published;
inline size_t current = 0;

// Every thread goes on by one step before the first goes on by two, so the threads of a warp stay
// in step.
inline void yield() { swapcontext(&fibers[current], &scheduler); }

inline void** buffers = nullptr;  // of the program
inline void (*body)() = nullptr;
inline void enter() {
  body();
  ended[current] = true;
}

template <typename T>
T shuffle(T value, unsigned source_lane) {
  memcpy(&published[current], &value, sizeof value);
  size_t source = current / 32 * 32 + source_lane;
  yield();
  T result;
  memcpy(&result, &published[min(source, published.size() - 1)], sizeof result);
  yield();
  return result;
}

inline void run_block(Dim3 size) {
  size_t count = size_t{size.x} * size.y * size.z;
  static std::vector<char> stacks;
  constexpr size_t kStack = 1 << 17;
  stacks.resize(count * kStack);
  fibers.assign(count, {});
  ended.assign(count, false);
  arrived.assign(count, 0);
  published.assign((count + 31) / 32 * 32, 0);
  for (size_t i = 0; i < count; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks.data() + i * kStack;
    fibers[i].uc_stack.ss_size = kStack;
    fibers[i].uc_link = &scheduler;
    makecontext(&fibers[i], enter, 0);
  }
  for (bool running = true; running;) {
    running = false;
    for (current = 0; current < count; ++current) {
      if (ended[current]) continue;
      running = true;
      unsigned i = static_cast<unsigned>(current);
      thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
      swapcontext(&scheduler, &fibers[current]);
    }
  }
}

inline void launch(Dim3 grid, Dim3 size, void (*kernel)()) {
  body = kernel;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block = {x, y, z};
        run_block(size);
      }
}

inline void transfer(size_t number, const char* mode, std::vector<char>& bytes) {
  char name[32];
  snprintf(name, sizeof name, "%zu.bin", number);
  FILE* file = fopen(name, mode);
  size_t moved = *mode == 'r' ? fread(bytes.data(), 1, bytes.size(), file)
                              : fwrite(bytes.data(), 1, bytes.size(), file);
  if (moved != bytes.size() || fclose(file) != 0) _exit(1);
}

// Reads buffer N of `sizes[N]` bytes from N.bin, runs the program, and writes all buffers back.
inline int on_files(const std::vector<size_t>& sizes, void (*run)()) {
  std::vector<std::vector<char>> contents;
  std::vector<void*> pointers;
  for (size_t size : sizes) contents.emplace_back(size);
  for (size_t i = 0; i < sizes.size(); ++i) {
    transfer(i, "rb", contents[i]);
    pointers.push_back(contents[i].data());
  }
  buffers = pointers.data();
  run();
  for (size_t i = 0; i < sizes.size(); ++i) transfer(i, "wb", contents[i]);
  return 0;
}
}  // namespace emulation

#define blockIdx emulation::block
#define threadIdx emulation::thread

inline void __syncthreads() {
  using namespace emulation;
  size_t me = current;
  uint64_t mine = ++arrived[me];
  for (bool wait = true; wait;) {
    yield();
    wait = false;
    for (size_t i = 0; i < arrived.size(); ++i) wait = wait || (!ended[i] && arrived[i] < mine);
  }
}
inline unsigned __activemask() { return 0xffffffffu; }
inline float __shfl_down_sync(unsigned, float value, unsigned by, int) {
  unsigned lane = static_cast<unsigned>(emulation::current % 32);
  return emulation::shuffle(value, lane + by < 32 ? lane + by : lane);
}
inline float __shfl_sync(unsigned, float value, int lane, int) {
  return emulation::shuffle(value, static_cast<unsigned>(lane));
}
