// What a process holds, counted by its driver calls on the recording driver, and what its grant
// refuses.
#include <gtest/gtest.h>

#include <thread>

#include "sluice/sluice.h"
#include "tests/intercept/broker.hpp"
#include "tests/intercept/cancelling.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

CUmemAllocationProp on_device(CUmemLocationType where = CU_MEM_LOCATION_TYPE_DEVICE) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {where, 0};
  return prop;
}

CUmemGenericAllocationHandle create(std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = on_device();
  EXPECT_EQ(::cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
  return handle;
}

class HeldMemory : public Session {
 protected:
  void SetUp() override {
    Session::SetUp();
    if (!IsSkipped()) attach("device:200us");
  }
  std::uint64_t held() { return slot().memory.held.load(); }
  void limit(std::uint64_t bytes) {
    if (!broker_) broker_.emplace(outrank(), slot());
    broker_->grant(bytes);
  }
  std::optional<Broker> broker_;
};

// Prevents: an entry that takes or gives back memory and is not counted, so that the broker takes
// too much or waits for nothing.
TEST_F(HeldMemory, EveryEntryWithAnAddressCounts) {
  CUdeviceptr at = 0;
  CUstream stream = make_stream();
  std::size_t pitch = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  EXPECT_EQ(held(), 100U);
  EXPECT_EQ(sluice_memory_held(), 100U);
  ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(slot().memory.peak.load(), 100U);
  ASSERT_EQ(::cuMemAllocPitch_v2(&at, &pitch, 700, 3, 4), CUDA_SUCCESS);
  EXPECT_EQ(held(), 3 * 1024U) << "the rows as the driver made them";
  ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocManaged(&at, 200, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(held(), 200U);
  ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
  CUdeviceptr each[4]{};
  ASSERT_EQ(::cuMemAllocAsync(&each[0], 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocAsync_ptsz(&each[1], 10, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocFromPoolAsync(&each[2], 100, nullptr, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocFromPoolAsync_ptsz(&each[3], 1000, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(held(), 1111U);
  ASSERT_EQ(::cuMemFreeAsync(each[0], stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemFreeAsync_ptsz(each[1], nullptr), CUDA_SUCCESS);
  EXPECT_EQ(held(), 1100U);
  ASSERT_EQ(::cuMemFree_v2(each[2]), CUDA_SUCCESS) << "allowed for any of them";
  ASSERT_EQ(::cuMemFreeAsync(each[3], stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
}

TEST_F(HeldMemory, AFailedCallChangesNothing) {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::size_t pitch = 0;
  const CUmemAllocationProp prop = on_device();
  for (const Id id : {Id::cuMemAlloc_v2, Id::cuMemAllocPitch_v2, Id::cuMemAllocManaged,
                      Id::cuMemAllocAsync, Id::cuMemCreate}) {
    fake::answer(id, CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocPitch_v2(&at, &pitch, 700, 3, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocManaged(&at, 100, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocAsync(&at, 100, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemCreate(&handle, 100, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(held(), 0U);
  fake::answer(Id::cuMemAlloc_v2, CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  fake::answer(Id::cuMemFree_v2, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(::cuMemFree_v2(at), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(held(), 100U);
  fake::answer(Id::cuMemFree_v2, CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(held(), 0U);
}

// Prevents: memory counts as free while a mapping or another handle keeps it.
TEST_F(HeldMemory, PhysicalMemoryLivesAsLongAsAHandleOrAMapping) {
  const auto page = create(10);
  const auto other = create(100);
  EXPECT_EQ(held(), 110U);
  ASSERT_EQ(::cuMemMap(0x7000, 10, 0, page, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemMap(0x7000 + 10, 100, 0, other, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemRelease(page), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemRelease(other), CUDA_SUCCESS);
  EXPECT_EQ(held(), 110U) << "still mapped";
  const auto same_number = create(1000);
  EXPECT_EQ(same_number, page) << "the driver gives the handle out again";
  EXPECT_EQ(held(), 1110U);
  ASSERT_EQ(::cuMemUnmap(0x7000, 110), CUDA_SUCCESS);
  EXPECT_EQ(held(), 1000U) << "both mappings at once";
  ASSERT_EQ(::cuMemRelease(same_number), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
}

/// The fake driver answers with the handle that this pointer stands for.
void* pointer_of(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(handle));
}

TEST_F(HeldMemory, EachReferenceKeepsPhysicalMemory) {
  const auto page = create(10);
  CUmemGenericAllocationHandle same = 0;
  ASSERT_EQ(::cuMemImportFromShareableHandle(&same, pointer_of(page),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  ASSERT_EQ(::cuMemRetainAllocationHandle(&same, pointer_of(page)), CUDA_SUCCESS);
  ASSERT_EQ(same, page);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(held(), 10U);
    ASSERT_EQ(::cuMemRelease(page), CUDA_SUCCESS);
  }
  EXPECT_EQ(held(), 0U);
}

// Prevents: memory of which only a mapping was left counts as free when that mapping goes, though a
// handle was made from it.
TEST_F(HeldMemory, AHandleFromAMappingKeepsPhysicalMemory) {
  const auto page = create(10);
  ASSERT_EQ(::cuMemMap(0x7000, 10, 0, page, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemRelease(page), CUDA_SUCCESS);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(::cuMemRetainAllocationHandle(&again, pointer_of(0x7004)), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemUnmap(0x7000, 10), CUDA_SUCCESS);
  EXPECT_EQ(held(), 10U);
  ASSERT_EQ(::cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
}

// Prevents: pages of a server count twice, for it and for the trainer that has imported them.
TEST_F(HeldMemory, MemoryOfOthersAndOfTheHostDoesNotCount) {
  CUmemGenericAllocationHandle foreign = 0;
  ASSERT_EQ(
      ::cuMemImportFromShareableHandle(&foreign, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      CUDA_SUCCESS);
  ASSERT_EQ(::cuMemMap(0x7000, 10, 0, foreign, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemUnmap(0x7000, 10), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemRelease(foreign), CUDA_SUCCESS);
  CUmemGenericAllocationHandle on_host = 0;
  const CUmemAllocationProp prop = on_device(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  ASSERT_EQ(::cuMemCreate(&on_host, 10, &prop, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemRelease(on_host), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(slot().memory.peak.load(), 0U);
}

// Prevents: a process that resets its device, or ends a context, counts as a holder for good.
TEST_F(HeldMemory, MemoryEndsWithItsContext) {
  CUcontext own = nullptr;
  CUdeviceptr at = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&at, 1), CUDA_SUCCESS);
  const auto page = create(10);
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocAsync(&at, 1000, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(held(), 1111U);
  ASSERT_EQ(::cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(held(), 11U);
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(held(), 10U) << "physical memory has no context";
  ASSERT_EQ(::cuMemRelease(page), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
}

// Prevents: memory that the GPU still has counts as free, because its free was called.
TEST_F(HeldMemory, WhatAStreamFreesCountsUntilTheStreamGetsThere) {
  limit(1000);
  CUstream stream = make_stream();
  CUdeviceptr at = 0;
  ASSERT_EQ(::cuMemAllocAsync(&at, 100, stream), CUDA_SUCCESS);
  fake::pause();
  launch(stream);
  ASSERT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 100U);
  EXPECT_EQ(sluice_memory_held(), 100U);
  fake::finish_all();
  EXPECT_TRUE(eventually([&] { return held() == 0; })) << "without a call of the program";
  EXPECT_EQ(fake::reserved(0), 0U);
}

// Prevents: memory that a pool keeps for later is free for others, as far as its broker knows.
TEST_F(HeldMemory, WhatAPoolKeepsCounts) {
  limit(1000);
  CUstream stream = make_stream();
  CUdeviceptr at = 0;
  fake::keep_in_pools(true);
  ASSERT_EQ(::cuMemAllocAsync(&at, 100, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 100U);
  ASSERT_EQ(::cuMemAllocAsync(&at, 60, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 100U) << "of what it keeps";
  ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(::cuDeviceGetMemPool(&pool, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(sluice_memory_held(), 0U);
  EXPECT_EQ(held(), 0U);
}

// Prevents: each allocation and each free in a stream costs as much again, to show a figure that
// bounds nothing.
TEST_F(HeldMemory, WithoutABoundNoCallAsksWhatAPoolHas) {
  CUstream stream = make_stream();
  fake::keep_in_pools(true);
  fake::clear();
  const auto asked = [] {
    int count = 0;
    for (const fake::Call& call : fake::calls()) count += int(call.id == Id::cuMemPoolGetAttribute);
    return count;
  };
  for (int i = 0; i < 100; ++i) {
    CUdeviceptr at = 0;
    ASSERT_EQ(::cuMemAllocAsync(&at, 100, stream), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  }
  EXPECT_LE(asked(), 10) << "the looks of each second";
  EXPECT_EQ(sluice_memory_held(), 100U) << "whoever asks learns it";
  limit(50);
  CUdeviceptr at = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&at, 50), CUDA_SUCCESS);
  EXPECT_EQ(fake::reserved(0), 0U) << "what the pool kept makes room";
}

CUmemoryPool make_pool(CUmemLocationType where, int id) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {where, id};
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(::cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  return pool;
}

// Prevents: memory of the host that comes from a pool counts as memory of the device.
TEST_F(HeldMemory, APoolOfTheHostHasNoMemoryOfTheDevice) {
  CUstream stream = make_stream();
  CUdeviceptr at = 0;
  limit(50);
  CUmemoryPool const on_host = make_pool(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
  ASSERT_EQ(::cuMemAllocFromPoolAsync(&at, 100, on_host, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
  CUdeviceptr other = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&other, 50), CUDA_SUCCESS);
  EXPECT_EQ(held(), 50U);
  EXPECT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 50U);
}

// Prevents: a pool that was not destroyed, or the next one with its name, counts for nothing or for
// a device that is not its own.
TEST_F(HeldMemory, WhatWasAllocatedOutlivesItsPool) {
  limit(1000);
  CUstream stream = make_stream();
  CUdeviceptr at = 0;
  CUmemoryPool const pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  ASSERT_EQ(::cuMemAllocFromPoolAsync(&at, 100, pool, stream), CUDA_SUCCESS);
  fake::answer(Id::cuMemPoolDestroy, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(::cuMemPoolDestroy(pool), CUDA_ERROR_UNKNOWN);
  fake::answer(Id::cuMemPoolDestroy, CUDA_SUCCESS);
  fake::pause();
  launch(stream);
  CUdeviceptr freed = 0;
  ASSERT_EQ(::cuMemAllocFromPoolAsync(&freed, 10, pool, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemFreeAsync(freed, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 110U) << "the pool is known as before";
  fake::finish_all();
  ASSERT_EQ(::cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(held(), 100U);
  ASSERT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
}

// Prevents: memory of a graph counts as held from the capture on, and for good.
TEST_F(HeldMemory, ACaptureTakesNothing) {
  CUstream stream = make_stream();
  CUdeviceptr at = 0x9000;
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemAllocAsync(&at, 100, stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(graph), "AF");
}

TEST_F(HeldMemory, WhatExceedsTheGrantIsRefused) {
  CUdeviceptr at = 0;
  std::size_t pitch = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = on_device();
  limit(4096);
  fake::clear();
  EXPECT_EQ(::cuMemAlloc_v2(&at, 4097), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocManaged(&at, 4097, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocAsync(&at, 4097, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocFromPoolAsync(&at, 4097, nullptr, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemCreate(&handle, 4097, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocPitch_v2(&at, &pitch, 1000, 5, 4), CUDA_ERROR_OUT_OF_MEMORY);
  for (const fake::Call& call : fake::calls()) {
    EXPECT_FALSE(call.name().starts_with("cuMem")) << call.name();
  }
  EXPECT_EQ(::cuMemAllocPitch_v2(&at, &pitch, 513, 5, 4), CUDA_ERROR_OUT_OF_MEMORY)
      << "5 rows of 1024 bytes, as shows after the call";
  EXPECT_EQ(fake::count(Id::cuMemFree_v2), 1U) << "leaked";
  EXPECT_EQ(held(), 0U);
  ASSERT_EQ(::cuMemAlloc_v2(&at, 4096), CUDA_SUCCESS) << "exactly the grant";
  CUdeviceptr more = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  limit(1024);
  EXPECT_EQ(held(), 4096U) << "nothing is taken away";
  EXPECT_EQ(::cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  limit(shm::kNoLimit);
  EXPECT_EQ(::cuMemAlloc_v2(&more, 1), CUDA_SUCCESS);
}

// Prevents: an optimizer step fails for a grant, and the training with it. The first refusal lets
// PyTorch free what it caches.
TEST_F(HeldMemory, AStepMayExceedTheGrantAfterOneRefusal) {
  CUdeviceptr at = 0;
  limit(10);
  for (int step = 0; step < 2; ++step) {
    sluice_critical(1);
    EXPECT_EQ(::cuMemAlloc_v2(&at, 11), CUDA_ERROR_OUT_OF_MEMORY);
    sluice_critical(1);  // does not begin another one
    EXPECT_EQ(::cuMemAlloc_v2(&at, 11), CUDA_SUCCESS);
    EXPECT_EQ(::cuMemAlloc_v2(&at, 11), CUDA_SUCCESS);
    sluice_critical(0);
    EXPECT_EQ(::cuMemAlloc_v2(&at, 11), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(sluice_memory_refused(), 2U * (step + 1));
  }
}

// Prevents: a dead server limits its trainers for good.
TEST_F(HeldMemory, TheGrantOfADeadBrokerDoesNotCount) {
  CUdeviceptr at = 0;
  limit(10);
  EXPECT_EQ(::cuMemAlloc_v2(&at, 11), CUDA_ERROR_OUT_OF_MEMORY);
  critical_.reset();
  EXPECT_EQ(::cuMemAlloc_v2(&at, 11), CUDA_SUCCESS);
}

// Prevents: two threads that allocate at once each find room for the last bytes.
TEST_F(HeldMemory, ThreadsTogetherDoNotExceedTheGrant) {
  limit(50);
  std::vector<std::jthread> threads;
  std::atomic<int> got{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        CUdeviceptr at = 0;
        if (::cuMemAlloc_v2(&at, 1) == CUDA_SUCCESS) ++got;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(got.load(), 50);
  EXPECT_EQ(held(), 50U);
}

// Prevents: a program tries 100 GB, which the driver refuses, and its broker takes them from its
// neighbours meanwhile.
TEST_F(HeldMemory, WhatTheDriverHasNotGivenYetIsNotHeld) {
  limit(std::size_t{100} << 30U);
  fake::answer(Id::cuMemCreate, CUDA_ERROR_OUT_OF_MEMORY);
  fake::stall(Id::cuMemCreate);
  std::jthread trying([] {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = on_device();
    EXPECT_EQ(::cuMemCreate(&handle, std::size_t{100} << 30U, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  EXPECT_EQ(held(), 0U);
  CUdeviceptr at = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&at, 1), CUDA_ERROR_OUT_OF_MEMORY) << "the call may still succeed";
  fake::unstall();
  trying.join();
  EXPECT_EQ(slot().memory.peak.load(), 0U);
  EXPECT_EQ(::cuMemAlloc_v2(&at, 1), CUDA_SUCCESS);
}

// Prevents: an address that is freed by one thread and given out to another loses its new record.
TEST_F(HeldMemory, AnAddressIsGivenOutBeforeItsFreeReturns) {
  CUdeviceptr at = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&at, 1), CUDA_SUCCESS);
  fake::stall_return(Id::cuMemFree_v2);
  std::jthread freeing([&] { EXPECT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS); });
  EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  CUdeviceptr again = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&again, 10), CUDA_SUCCESS);
  ASSERT_EQ(again, at);
  EXPECT_EQ(held(), 11U);
  fake::unstall();
  freeing.join();
  EXPECT_EQ(held(), 10U);
  ASSERT_EQ(::cuMemFree_v2(again), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
}

// Prevents: what a cancelled thread was about to allocate counts towards the grant for good.
TEST_F(HeldMemory, WhatACancelledThreadReservedIsFreeAgain) {
  limit(100);
  cancel_inside(Id::cuMemCreate, [] { create(100); });
  cancel_inside(Id::cuMemAlloc_v2, [] {
    CUdeviceptr at = 0;
    ::cuMemAlloc_v2(&at, 100);
  });
  EXPECT_EQ(held(), 0U);
  CUdeviceptr at = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
}

// Prevents: memory that a cancelled thread was freeing counts as held for good, whether the driver
// had freed it or not.
TEST_F(HeldMemory, WhatACancelledThreadWasFreeingCountsWhileItIsThere) {
  CUdeviceptr at = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  const auto free_it = [&at] { ::cuMemFree_v2(at); };
  cancel_inside(Id::cuMemFree_v2, free_it);
  EXPECT_EQ(held(), 100U);
  ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  EXPECT_EQ(held(), 0U);
  ASSERT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  cancel_inside(Id::cuMemFree_v2, free_it, &fake::stall_return);
  CUdeviceptr again = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&again, 10), CUDA_SUCCESS);
  ASSERT_EQ(again, at);
  EXPECT_EQ(held(), 10U) << "the address was given out again";
}

/// Allocates before it attaches.
class EarlyMemory : public Session {};

TEST_F(EarlyMemory, CountsFromTheFirstAllocation) {
  choose("device:200us");
  start_controller();
  CUcontext context = nullptr;
  CUdeviceptr at = 0;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  EXPECT_EQ(sluice_attached(), 0);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(slot().memory.held.load(), 100U);
}

/// A process above the others shares its memory out itself.
class CriticalMemory : public Session {};

TEST_F(CriticalMemory, HasNoLimit) {
  attach("none", 5);
  const Broker broker(outrank(), slot());
  broker.grant(10);
  CUdeviceptr at = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&at, 100), CUDA_SUCCESS);
  EXPECT_EQ(slot().memory.held.load(), 100U);
}

}  // namespace
}  // namespace sluice::intercept::test
