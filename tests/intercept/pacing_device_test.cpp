// The policy that waits on the device, by counts and order of driver calls on the recording driver;
// and what ends with a context.
#include <gtest/gtest.h>

#include <algorithm>

#include "shm/policy.hpp"
#include "tests/intercept/launcher.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;
using shm::Count;

class Pacing : public Session {};

std::string order_of_calls() {
  std::string order;
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuLaunchKernel) order += 'K';
    if (call.id == Id::cuGraphLaunch) order += 'G';
    if (call.id == Id::cuStreamWaitValue64_v2) order += 'W';
  }
  return order;
}

TEST_F(Pacing, DevicePutsAWaitInFrontOfEveryNthLaunchOfAStream) {
  attach("device:3");
  outrank();
  CUstream stream = make_stream();
  for (int i = 0; i < 7; ++i) launch(stream);
  EXPECT_EQ(order_of_calls(), "WKKKWKKKWK");
  fake::clear();
  launch(make_stream());
  launch(stream);
  EXPECT_EQ(order_of_calls(), "WKK") << "streams are spaced each by itself";
  fake::clear();
  for (int i = 0; i < 3; ++i) ::cuGraphLaunch(reinterpret_cast<CUgraphExec>(0x10), stream);
  EXPECT_EQ(order_of_calls(), "WGWGWG") << "a graph is many kernels";
  fake::clear();
  launch(stream);
  EXPECT_EQ(order_of_calls(), "WK") << "behind a graph a spacing begins";
}

TEST_F(Pacing, DeviceWaitsForTheClientsOwnGateAndNothingElse) {
  attach("device:1");
  outrank();
  // The interposer has a mapping of its own, so only the offset within the page is comparable.
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<const char*>(&slot().gate) -
                                                 reinterpret_cast<const char*>(&board()));
  CUstream stream = make_stream();
  launch(stream);
  bool found = false;
  for (const fake::Call& call : fake::calls()) {
    if (call.id != Id::cuStreamWaitValue64_v2) continue;
    found = true;
    EXPECT_EQ(call.arguments[0], reinterpret_cast<std::uint64_t>(stream));
    EXPECT_EQ((call.arguments[1] - offset) % 4096, 0U);
    EXPECT_EQ(call.arguments[2], 0U) << "open is 0";
    EXPECT_EQ(call.arguments[3], static_cast<std::uint64_t>(CU_STREAM_WAIT_VALUE_EQ));
  }
  EXPECT_TRUE(found);
}

TEST_F(Pacing, DeviceNeverHoldsOnTheHost) {
  attach("device:4");
  outrank().begin();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(order_of_calls(), "WKKKKWKKKK");
  EXPECT_EQ(counted(Count::kHeldNs), 0U) << "held until max_hold opened the gate";
}

TEST_F(Pacing, ADeviceWithoutStreamWaitsFallsBackToEvents) {
  fake::set_stream_waits(false);
  catch_errors();
  attach("device:4");
  outrank();
  launch();
  fake::pause();
  {
    Launcher launcher(6, make_stream());
    EXPECT_TRUE(launcher.stops_after(4)) << "event:2";
    fake::resume();
  }
  EXPECT_EQ(shm::Policy::unpack(slot().policy.load()),
            (shm::Policy{shm::PolicyKind::kEvent, shm::Spacing::launches(2)}));
  const std::string said = errors();
  EXPECT_NE(said.find("using event:2"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// An error of a call of ours must not reach the program.
TEST_F(Pacing, ErrorsOfOurOwnCallsStayOurs) {
  attach("device:1");
  outrank();
  fake::answer(Id::cuStreamWaitValue64_v2, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  fake::answer(Id::cuStreamGetId, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  fake::answer(Id::cuLaunchKernel, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

// Stream 0 of a per-thread entry is not the legacy stream: a wait there would bound the wrong one.
TEST_F(Pacing, PerThreadEntriesNameThePerThreadStream) {
  attach("device:1");
  outrank();
  ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  ::cuGraphLaunch_ptsz(reinterpret_cast<CUgraphExec>(0x10), nullptr);
  CUlaunchConfig config{};
  ::cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr);
  ::cuLaunchCooperativeKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  const auto per_thread = reinterpret_cast<std::uint64_t>(CU_STREAM_PER_THREAD);
  std::size_t waits = 0;
  for (const fake::Call& call : fake::calls()) {
    if (call.id == Id::cuStreamWaitValue64_v2) {
      ++waits;
      EXPECT_EQ(call.arguments[0], per_thread);
    }
    if (call.id == Id::cuStreamGetId) {
      EXPECT_EQ(call.arguments[0], per_thread);
    }
    if (call.id == Id::cuLaunchKernel_ptsz) {
      EXPECT_EQ(call.arguments[8], 0U) << "the program's own argument";
    }
  }
  EXPECT_EQ(waits, 4U);
}

TEST_F(Pacing, AReusedStreamHandleHasASpacingOfItsOwn) {
  attach("device:2");
  outrank();
  CUstream first = make_stream();
  launch(first);
  ASSERT_EQ(::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  CUstream second = make_stream();
  ASSERT_EQ(second, first) << "the fake driver is to reuse handles";
  launch(second);
  EXPECT_EQ(order_of_calls(), "WKWK");
}

// A device reset ends registrations: waits on the old address would never be satisfied.
TEST_F(Pacing, ADeviceResetRegistersTheBoardAgain) {
  attach("device:1");
  outrank();
  launch();
  ASSERT_TRUE(fake::registered());
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  fake::clear();
  launch();
  EXPECT_TRUE(fake::registered());
  EXPECT_EQ(order_of_calls(), "WK");
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 1U);
}

// Seen to fail without the look at the primary context in cuGreenCtxDestroy.
TEST_F(Pacing, AGreenContextMayBeTheLastToHoldThePrimaryOne) {
  attach("device:1");
  outrank();
  CUcontext primary = nullptr;
  CUgreenCtx green = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
  launch();
  ASSERT_EQ(::cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ASSERT_TRUE(fake::registered());
  ASSERT_EQ(::cuGreenCtxDestroy(green), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  launch();
  EXPECT_TRUE(fake::registered());
}

// A context may end by a call that passes no hook: in a library that was loaded past the preload.
TEST_F(Pacing, AContextThatEndsUnseenCostsNoWait) {
  attach("device:1");
  outrank();
  launch();
  void* reset = nullptr;
  ASSERT_EQ(fake::find_entry("cuDevicePrimaryCtxReset", &reset, 12000, 0), CUDA_SUCCESS);
  ASSERT_EQ(reinterpret_cast<CUresult (*)(CUdevice)>(reset)(0), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  launch();
  EXPECT_TRUE(fake::registered());
  EXPECT_EQ(counted(Count::kBypassRefusedWait), 0U);
}

TEST_F(Pacing, TheProgramsContextStaysCurrent) {
  attach("device:1");
  outrank();
  CUcontext primary = nullptr;
  CUcontext own = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  ASSERT_FALSE(fake::registered());
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  launch(make_stream());  // the board is registered in the primary one
  EXPECT_TRUE(fake::registered());
  CUcontext now = nullptr;
  ASSERT_EQ(::cuCtxGetCurrent(&now), CUDA_SUCCESS);
  EXPECT_EQ(now, own);
}

TEST_F(Pacing, TheBoardIsRegisteredOnce) {
  attach("device:1");
  EXPECT_TRUE(fake::registered()) << "at the first launch";
  outrank();
  for (int i = 0; i < 5; ++i) launch(make_stream());
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 0U);
}

// Prevents: a program hangs in a launch. While a queue of its context is full, the driver blocks
// whoever makes an event or registers memory, and the queue may be waiting for this very thread.
// Seen to fail, for each policy, when launches made the events; device:1 when the first launch that
// is paced registered the board.
class FullQueue : public Pacing, public testing::WithParamInterface<const char*> {};

TEST_P(FullQueue, BlocksNoLaunchIntoAnotherStream) {
  setenv("SLUICE_GPU_TIME", "1", 1);
  attach(GetParam());
  outrank();
  const auto launches = [](CUstream stream) {
    Launcher launcher(200, stream);
    return eventually([&] { return launcher.done() == 200; });
  };
  fake::stall(Id::cuMemHostRegister_v2);
  EXPECT_TRUE(launches(make_stream())) << "blocked by the registration";
  fake::unstall();
  fake::stall(Id::cuEventCreate);
  // More than the pool has events for.
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(launches(make_stream())) << "blocked by an event";
  fake::unstall();
}
INSTANTIATE_TEST_SUITE_P(, FullQueue,
                         testing::Values("gate", "event:2", "device:1", "device:200us",
                                         "device:200us,ahead:2ms"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace sluice::intercept::test
