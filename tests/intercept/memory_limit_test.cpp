// A limit of device memory, chosen by the user of any program: what is refused, and what the
// program is told that it has.
#include "shm/memory_limit.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "sluice/sluice.h"
#include "tests/intercept/broker.hpp"
#include "tests/intercept/cancelling.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kGiB = std::size_t{1} << 30U;
constexpr std::size_t kLimit = 2 * kGiB;

struct Told {
  std::size_t free = 0;
  std::size_t total = 0;
  std::size_t device_total = 0;
  friend bool operator==(const Told&, const Told&) = default;
};
std::ostream& operator<<(std::ostream& out, const Told& told) {
  return out << told.free << " of " << told.total << ", device " << told.device_total;
}

Told told(CUdevice device = 0) {
  Told now;
  EXPECT_EQ(::cuMemGetInfo_v2(&now.free, &now.total), CUDA_SUCCESS);
  EXPECT_EQ(::cuDeviceTotalMem_v2(&now.device_total, device), CUDA_SUCCESS);
  return now;
}

CUresult allocate(std::size_t bytes, CUdeviceptr* at = nullptr) {
  CUdeviceptr unused = 0;
  return ::cuMemAlloc_v2(at != nullptr ? at : &unused, bytes);
}

class MemoryLimit : public Session {
 protected:
  void SetUp() override {
    Session::SetUp();
    if (!IsSkipped()) setenv("SLUICE_MEMORY", "2GiB", 1);
  }
  std::uint64_t held() { return slot().memory.held.load(); }
  std::uint32_t refused() { return slot().memory.refused_allocations.load(); }
  static CUcontext use_context(CUdevice device = 0) {
    CUcontext context = nullptr;
    EXPECT_EQ(::cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(::cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
  }
};

// Prevents: a limit that holds at priority 0 only, as a grant does.
TEST_F(MemoryLimit, HoldsAtAnyPriority) {
  attach("none", 200);
  EXPECT_EQ(slot().memory_limit.load(), kLimit);
  CUdeviceptr at = 0;
  ASSERT_EQ(allocate(kLimit - 1, &at), CUDA_SUCCESS);
  EXPECT_EQ(allocate(2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(1), CUDA_SUCCESS) << "exactly the limit";
  EXPECT_EQ(held(), kLimit);
  EXPECT_EQ(refused(), 1U);
  EXPECT_EQ(sluice_memory_refused(), 1U);
  EXPECT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  EXPECT_EQ(allocate(kLimit - 1), CUDA_SUCCESS) << "a free makes room";
}

// Prevents: an entry that takes memory past the limit. What is refused does not reach the driver.
TEST_F(MemoryLimit, RefusesEveryWayToTakeMemory) {
  attach("device:200us");
  CUdeviceptr at = 0;
  std::size_t pitch = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUstream stream = make_stream();
  fake::clear();
  EXPECT_EQ(::cuMemAlloc_v2(&at, kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocManaged(&at, kLimit + 1, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocAsync(&at, kLimit + 1, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocAsync_ptsz(&at, kLimit + 1, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocFromPoolAsync(&at, kLimit + 1, nullptr, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemCreate(&handle, kLimit + 1, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuMemAllocPitch_v2(&at, &pitch, kGiB, 3, 4), CUDA_ERROR_OUT_OF_MEMORY);
  for (const fake::Call& call : fake::calls()) {
    EXPECT_FALSE(call.name().starts_with("cuMem")) << call.name();
  }
  EXPECT_EQ(::cuMemAllocPitch_v2(&at, &pitch, 513, (kLimit / 1024) + 1, 4),
            CUDA_ERROR_OUT_OF_MEMORY)
      << "rows of 1024 bytes, as shows after the call";
  EXPECT_EQ(fake::count(Id::cuMemFree_v2), 1U) << "leaked";
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(refused(), 8U);
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
  EXPECT_EQ(::cuMemCreate(&handle, kLimit + 1, &prop, 0), CUDA_SUCCESS) << "no device memory";
}

// Prevents: a program that takes 75 % of what is free, or of the total, and fails.
TEST_F(MemoryLimit, IsWhatTheProgramIsTold) {
  attach("none", 7);
  EXPECT_EQ(told(), (Told{kLimit, kLimit, kLimit}));
  ASSERT_EQ(allocate(kGiB), CUDA_SUCCESS);
  EXPECT_EQ(told(), (Told{kLimit - kGiB, kLimit, kLimit}));
  std::size_t alone = 0;
  EXPECT_EQ(::cuMemGetInfo_v2(nullptr, &alone), CUDA_SUCCESS);
  EXPECT_EQ(alone, kLimit);
  EXPECT_EQ(::cuMemGetInfo_v2(&alone, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(alone, kLimit - kGiB);
  ASSERT_EQ(allocate(kGiB), CUDA_SUCCESS);
  EXPECT_EQ(told().free, 0U);
  slot().memory_limit.store(kGiB);
  EXPECT_EQ(told(), (Told{0, kGiB, kGiB})) << "holds more than it may";
  fake::answer(Id::cuMemGetInfo_v2, CUDA_ERROR_INVALID_CONTEXT);
  std::size_t untouched = 5 * kGiB;
  EXPECT_EQ(::cuMemGetInfo_v2(&untouched, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(untouched, 5 * kGiB);
}

// Prevents: a limit above what the GPU has, or what is free there, promises memory that is not
// there.
TEST_F(MemoryLimit, PromisesNoMoreThanTheGpuHas) {
  setenv("SLUICE_MEMORY", "75GiB", 1);
  catch_errors();
  attach("none");
  EXPECT_EQ(told(), (Told{fake::kFreeMemory, 75 * kGiB, 75 * kGiB})) << "others hold the rest";
  EXPECT_EQ(errors(), "");
}

TEST_F(MemoryLimit, AboveTheGpuIsNamedAndHasNoEffect) {
  setenv("SLUICE_MEMORY", "200GiB", 1);
  catch_errors();
  attach("none");
  EXPECT_EQ(told(), (Told{fake::kFreeMemory, fake::kTotalMemory, fake::kTotalMemory}));
  EXPECT_NE(errors().find("GPU 0 has 81920 MiB: the limit of 204800 MiB has no effect there"),
            std::string::npos)
      << errors();
}

// Prevents: what a program takes before its first launch is free of the limit, or is missing in
// `sluice status`.
TEST_F(MemoryLimit, HoldsFromTheFirstAllocation) {
  choose("device:200us");
  start_controller();
  std::size_t total = 0;
  EXPECT_EQ(::cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, kLimit) << "before there is a context";
  use_context();
  EXPECT_EQ(sluice_attached(), 0);
  EXPECT_EQ(allocate(kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(sluice_attached(), 1);
  EXPECT_EQ(refused(), 1U);
}

TEST_F(MemoryLimit, AQuestionAloneAttaches) {
  choose("device:200us");
  start_controller();
  use_context();
  EXPECT_EQ(told().free, kLimit);
  EXPECT_EQ(slot().memory_limit.load(), kLimit);
}

// Prevents: without a controller there is no limit.
TEST_F(MemoryLimit, HoldsWithoutAController) {
  choose("device:200us");
  setenv("SLUICE_SESSION", own_session_.name().c_str(), 1);
  use_context();
  EXPECT_EQ(allocate(kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(kLimit), CUDA_SUCCESS);
  EXPECT_EQ(told(), (Told{0, kLimit, kLimit}));
  start_controller();
  EXPECT_TRUE(eventually([&] { return launch() == CUDA_SUCCESS && sluice_attached() == 1; }));
  EXPECT_EQ(refused(), 1U) << "it was refused before there was a slot";
  EXPECT_EQ(held(), kLimit);
}

// Prevents: `sluice set --memory` takes something away, or has no effect.
TEST_F(MemoryLimit, ALowerLimitTakesNothingAway) {
  attach("device:200us");
  CUdeviceptr at = 0;
  ASSERT_EQ(allocate(kLimit, &at), CUDA_SUCCESS);
  slot().memory_limit.store(kGiB);
  EXPECT_EQ(held(), kLimit);
  EXPECT_EQ(allocate(1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  EXPECT_EQ(allocate(kGiB), CUDA_SUCCESS);
  slot().memory_limit.store(0);
  EXPECT_EQ(allocate(10 * kGiB), CUDA_SUCCESS) << "no limit any more";
  EXPECT_EQ(told(), (Told{fake::kFreeMemory, fake::kTotalMemory, fake::kTotalMemory}));
}

// Prevents: a broker gives more than the user allows, or an optimizer step exceeds the user's
// limit.
TEST_F(MemoryLimit, TheSmallerOfLimitAndGrantHolds) {
  attach("device:200us");
  const Broker broker(outrank(), slot());
  broker.grant(10 * kGiB);
  EXPECT_EQ(allocate(kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(told().free, kLimit);
  EXPECT_EQ(sluice_memory_grant(), kLimit);
  sluice_critical(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(allocate(kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  sluice_critical(0);
  broker.grant(kGiB);
  EXPECT_EQ(allocate(kGiB + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(told(), (Told{kGiB, kLimit, kLimit})) << "a grant changes, and the total does not";
  EXPECT_EQ(sluice_memory_grant(), kGiB);
  sluice_critical(1);
  EXPECT_EQ(allocate(kGiB + 1), CUDA_ERROR_OUT_OF_MEMORY) << "the first one of a step";
  EXPECT_EQ(allocate(kGiB + 1), CUDA_SUCCESS);
  sluice_critical(0);
}

/// What four streams get that each allocate, launch and free, and wait for nothing.
class StreamsUnderALimit : public MemoryLimit {
 protected:
  CUresult allocate_on(CUstream stream, std::size_t bytes) {
    CUdeviceptr at = 0;
    const CUresult result = ::cuMemAllocAsync(&at, bytes, stream);
    most_ = std::max(most_, fake::reserved(0));
    if (result != CUDA_SUCCESS) return result;
    launch(stream);
    EXPECT_EQ(::cuMemFreeAsync(at, stream), CUDA_SUCCESS);
    return result;
  }
  std::uint64_t most_ = 0;
};

// Prevents: a program that frees in stream order holds as much memory as it likes.
TEST_F(StreamsUnderALimit, WaitForWhatOthersFree) {
  attach("none");
  fake::pause();
  EXPECT_EQ(allocate_on(make_stream(), kGiB), CUDA_SUCCESS);
  EXPECT_EQ(allocate_on(make_stream(), kGiB), CUDA_SUCCESS);
  EXPECT_EQ(told().free, 0U);
  std::atomic<bool> given{false};
  CUstream third = make_stream();
  std::thread waiting([&] {
    EXPECT_EQ(allocate_on(third, kGiB), CUDA_SUCCESS);
    given = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(given.load());
  EXPECT_EQ(fake::reserved(0), kLimit);
  fake::finish_all();
  waiting.join();
  EXPECT_EQ(slot().memory.refused_allocations.load(), 0U);
}

// A stream can have at once what it has freed itself, as the driver's pools give it.
TEST_F(StreamsUnderALimit, ReuseTheirOwnMemory) {
  attach("none");
  CUstream stream = make_stream();
  fake::pause();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(allocate_on(stream, 3 * kGiB / 2), CUDA_SUCCESS);
  EXPECT_LE(most_, kLimit);
}

// Prevents: memory that a pool keeps is missing where the program needs it.
TEST_F(StreamsUnderALimit, WhatAPoolKeepsIsGivenBackForOthers) {
  attach("none");
  fake::keep_in_pools(true);
  EXPECT_EQ(allocate_on(make_stream(), kLimit), CUDA_SUCCESS);
  EXPECT_EQ(fake::reserved(0), kLimit);
  EXPECT_EQ(told().free, 0U) << "it is on the GPU";
  EXPECT_EQ(allocate(kLimit), CUDA_SUCCESS);
  EXPECT_EQ(fake::reserved(0), 0U);
}

// Prevents: threads that allocate at once each find room for the last bytes; also more threads than
// there are places for reservations at first.
TEST_F(MemoryLimit, ThreadsTogetherDoNotExceedIt) {
  attach("none", 3);
  const CUcontext context = use_context();
  constexpr int kThreads = 100;
  fake::stall(Id::cuMemAlloc_v2);
  std::atomic<int> got{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ::cuCtxSetCurrent(context);
      if (allocate(kLimit / 80) == CUDA_SUCCESS) ++got;
    });
  }
  EXPECT_TRUE(eventually([&] {
    return fake::stalled_threads() == 80 && refused() == kThreads - 80;
  })) << fake::stalled_threads();
  EXPECT_EQ(told().free, kLimit - kLimit / 80 * 80) << "what is on its way is not free";
  fake::unstall();
  threads.clear();
  EXPECT_EQ(got.load(), 80);
  EXPECT_EQ(held(), kLimit / 80 * 80);
}

TEST_F(MemoryLimit, WhatACancelledThreadReservedIsFreeAgain) {
  attach("none", 3);
  cancel_inside(Id::cuMemAlloc_v2, [] { allocate(kLimit); });
  EXPECT_EQ(allocate(kLimit), CUDA_SUCCESS);
}

// Prevents: a limit that two devices share.
TEST_F(MemoryLimit, EachDeviceHasItsOwn) {
  attach("device:200us");
  ASSERT_EQ(allocate(kLimit), CUDA_SUCCESS);
  use_context(1);
  EXPECT_EQ(told(1), (Told{kLimit, kLimit, kLimit}));
  EXPECT_EQ(allocate(kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(kLimit), CUDA_SUCCESS);
  EXPECT_EQ(allocate(1), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 2};
  EXPECT_EQ(::cuMemCreate(&handle, kLimit, &prop, 0), CUDA_SUCCESS) << "of a third device";
  EXPECT_EQ(::cuMemCreate(&handle, 1, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

// Prevents: what a context held counts for good after its reset.
TEST_F(MemoryLimit, AResetMakesRoom) {
  attach("device:200us");
  use_context();
  ASSERT_EQ(allocate(kLimit), CUDA_SUCCESS);
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  use_context();
  EXPECT_EQ(told().free, kLimit);
  EXPECT_EQ(allocate(kLimit), CUDA_SUCCESS);
}

// Prevents: a line for each refusal of a program that tries for ever, or a refusal without a word.
TEST_F(MemoryLimit, TheFirstRefusalIsSaid) {
  catch_errors();
  attach("none", 1);
  ASSERT_EQ(allocate(kGiB), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(allocate(kLimit), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("GPU 0: an allocation of 2048 MiB was refused: the limit is 2048 MiB, of "
                      "which 1024 are held"),
            std::string::npos)
      << said;
}

// Prevents: a limit with a mistake in it that leaves the program unlimited, and its neighbours
// without memory.
TEST_F(MemoryLimit, ABadLimitIsNamedAndIsTheLeastOne) {
  for (const char* const text : {"20", "0", "1023MiB", "17TiB", "much"}) {
    setenv("SLUICE_MEMORY", text, 1);
    std::size_t total = 0;
    EXPECT_EQ(::cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
    EXPECT_EQ(total, shm::kLeastMemoryLimit) << text;
  }
  catch_errors();
  attach("none");
  EXPECT_NE(errors().find("SLUICE_MEMORY: 'much' is not one of 20GiB"), std::string::npos)
      << errors();
  EXPECT_NE(errors().find("; using the least limit, 1GiB\n"), std::string::npos) << errors();
  EXPECT_EQ(slot().memory_limit.load(), shm::kLeastMemoryLimit);
  EXPECT_EQ(allocate(2 * kGiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(kGiB / 2), CUDA_SUCCESS);
}

TEST_F(MemoryLimit, AnEmptyVariableAndNoneAreNoLimit) {
  for (const char* const text : {"", "none"}) {
    setenv("SLUICE_MEMORY", text, 1);
    std::size_t total = 0;
    EXPECT_EQ(::cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
    EXPECT_EQ(total, fake::kTotalMemory) << text;
  }
}

/// Nobody has chosen a limit.
class NoMemoryLimit : public Session {};

// Prevents: programs without a limit attach earlier than before, or are told other numbers.
TEST_F(NoMemoryLimit, ChangesNothing) {
  choose("device:200us");
  start_controller();
  CUcontext context = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(told(), (Told{fake::kFreeMemory, fake::kTotalMemory, fake::kTotalMemory}));
  EXPECT_EQ(allocate(90 * kGiB), CUDA_SUCCESS);
  EXPECT_EQ(sluice_attached(), 0);
}

}  // namespace
}  // namespace sluice::intercept::test
