// Device memory of the simulated GPU: bounded, shared by all processes, mapped where the program
// asks for it.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/simgpu/gpu.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/session.hpp"
#include "tests/support/signal.hpp"

namespace {

using sluice::simgpu::test::Gpu;
using sluice::test::eventually;
using sluice::test::ForkedChild;
using sluice::test::Signal;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTotal = 64 * kMiB;

/// Before the first cuInit, which starts the GPU process.
const bool kSmallGpu = setenv("SLUICE_SIM_MEMORY_MIB", "64", 1) == 0;
const sluice::test::Session kSession("simmem");

CUmemAllocationProp on_device() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

CUresult create(CUmemGenericAllocationHandle& handle, std::size_t bytes) {
  const CUmemAllocationProp prop = on_device();
  return cuMemCreate(&handle, bytes, &prop, 0);
}

CUresult let_access(CUdeviceptr at, std::size_t bytes) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuMemSetAccess(at, bytes, &access, 1);
}

/// Each test is a process of its own, and the GPU process may serve the next one too.
class SimulatedMemory : public testing::Test {
 protected:
  static std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, kTotal);
    return free;
  }
};

TEST_F(SimulatedMemory, IsBounded) {
  const Gpu gpu;
  ASSERT_EQ(free_bytes(), kTotal);
  CUdeviceptr most = 0;
  ASSERT_EQ(cuMemAlloc(&most, 60 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), 4 * kMiB);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc(&more, 5 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemGenericAllocationHandle page = 0;
  EXPECT_EQ(create(page, 6 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_bytes(), 4 * kMiB) << "a refused allocation takes memory";
  EXPECT_EQ(cuMemFree(most), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), kTotal);
}

// Prevents: two processes of a test each get the whole memory, so that no handover is needed.
TEST_F(SimulatedMemory, IsSharedByProcessesAndFreeAfterADeath) {
  const Signal full;
  ForkedChild other([&] {  // before this process has a GPU
    const Gpu gpu;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle page = 0;
    if (cuMemAlloc(&at, 10 * kMiB) != CUDA_SUCCESS || create(page, 50 * kMiB) != CUDA_SUCCESS) {
      return 1;
    }
    full.raise();
    for (;;) pause();
  });
  ASSERT_TRUE(full.wait());
  const Gpu gpu;
  EXPECT_EQ(free_bytes(), 4 * kMiB);
  CUmemGenericAllocationHandle page = 0;
  EXPECT_EQ(create(page, 10 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  other.signal(SIGKILL);
  other.wait();
  EXPECT_TRUE(eventually([] { return free_bytes() == kTotal; }));
  EXPECT_EQ(create(page, 10 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(page), CUDA_SUCCESS);
}

TEST_F(SimulatedMemory, PagesKeepTheirBytesWhereverTheyAreMapped) {
  const Gpu gpu;
  std::size_t granularity = 0;
  const CUmemAllocationProp prop = on_device();
  ASSERT_EQ(
      cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      CUDA_SUCCESS);
  ASSERT_EQ(granularity, 2 * kMiB);
  CUdeviceptr base = 0;
  ASSERT_EQ(cuMemAddressReserve(&base, 16 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), kTotal) << "addresses are not memory";
  CUmemGenericAllocationHandle pages[2]{};
  for (auto& page : pages) ASSERT_EQ(create(page, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(base, 4 * kMiB, 0, pages[0], 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(base + 4 * kMiB, 4 * kMiB, 0, pages[1], 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(base, 4 * kMiB, 0, pages[1], 0), CUDA_ERROR_INVALID_VALUE) << "taken";
  EXPECT_EQ(cuMemMap(base + 16 * kMiB, 4 * kMiB, 0, pages[1], 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(let_access(base, 8 * kMiB), CUDA_SUCCESS);

  // Across both pages, by the GPU process and by this one.
  std::vector<char> in(6 * kMiB);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 7 + i / 4096);
  std::vector<char> out(in.size());
  ASSERT_EQ(cuMemcpyHtoD(base + kMiB, in.data(), in.size()), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(base + 2 * kMiB, base + kMiB, 1000, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(out.data(), base + 2 * kMiB, 1000), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(in.data(), out.data(), 1000), 0);

  // The second page moves in front.
  ASSERT_EQ(cuMemUnmap(base, 8 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(base, 4 * kMiB, 0, pages[1], 0), CUDA_SUCCESS);
  ASSERT_EQ(let_access(base, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(out.data(), base, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(in.data() + 3 * kMiB, out.data(), 3 * kMiB), 0);

  EXPECT_EQ(cuMemAddressFree(base, 16 * kMiB), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  EXPECT_EQ(cuMemUnmap(base, 2 * kMiB), CUDA_ERROR_INVALID_VALUE) << "half a mapping";
  ASSERT_EQ(cuMemRelease(pages[1]), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(pages[1]), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_bytes(), kTotal - 8 * kMiB) << "a mapping keeps the memory";
  ASSERT_EQ(cuMemUnmap(base, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), kTotal - 4 * kMiB);
  ASSERT_EQ(cuMemRelease(pages[0]), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), kTotal);
  EXPECT_EQ(cuMemAddressFree(base, 16 * kMiB), CUDA_SUCCESS);
  cuStreamDestroy(stream);
}

// Prevents: an arena forgets cuMemSetAccess() and works here, but not on a GPU.
TEST_F(SimulatedMemory, NobodyReadsAMappingWithoutAccess) {
  const Gpu gpu;
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle page = 0;
  ASSERT_EQ(cuMemAddressReserve(&base, 2 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(create(page, 2 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(base, 2 * kMiB, 0, page, 0), CUDA_SUCCESS);
  char byte = 0;
  EXPECT_EQ(cuMemcpyDtoH(&byte, base, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, 2 * kMiB), CUDA_SUCCESS);
}

TEST_F(SimulatedMemory, AStreamFreesBehindItsWork) {
  const Gpu gpu;
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr at = 0;
  ASSERT_EQ(cuMemAllocAsync(&at, 8 * kMiB, stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 5'000'000), CUDA_SUCCESS);  // 50 ms of real time
  ASSERT_EQ(cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), kTotal - 8 * kMiB) << "the kernel may use it";
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), kTotal);
  EXPECT_EQ(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);
  cuStreamDestroy(stream);
}

// What a limit of memory counts: all that the pool has taken from the device.
TEST_F(SimulatedMemory, APoolHasWhatAStreamHasNotFreedYet) {
  const Gpu gpu;
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetMemPool(&pool, 0), CUDA_SUCCESS);
  const auto reserved = [pool] {
    cuuint64_t bytes = 1;
    EXPECT_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes),
              CUDA_SUCCESS);
    return bytes;
  };
  EXPECT_EQ(reserved(), 0U);
  CUdeviceptr at = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&at, 8 * kMiB, pool, stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 5'000'000), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE) << "freed twice";
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 8 * kMiB);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 0U);
  cuStreamDestroy(stream);
}

// As with a driver. Seen to fail: cuMemFree knew only what cuMemAlloc had allocated.
TEST_F(SimulatedMemory, WhatAStreamAllocatedCanBeFreedAtOnce) {
  const Gpu gpu;
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr at = 0;
  ASSERT_EQ(cuMemAllocAsync(&at, 8 * kMiB, stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1'000'000), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(at), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS) << "it waits for the work";
  EXPECT_EQ(free_bytes(), kTotal);
  EXPECT_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAllocAsync(&at, 8 * kMiB, stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1'000'000), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE) << "freed twice";
  cuStreamDestroy(stream);
}

TEST_F(SimulatedMemory, EndsWithItsContext) {
  const Gpu gpu;
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle page = 0;
  ASSERT_EQ(cuMemAlloc(&at, 8 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(create(page, 2 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  const Gpu again;
  EXPECT_EQ(free_bytes(), kTotal - 2 * kMiB) << "a physical allocation has no context";
  EXPECT_EQ(cuMemRelease(page), CUDA_SUCCESS);
}

}  // namespace
