// The estimate of a client's GPU time (Slot::gpu_ns), on the recording driver: every launch takes
// what the test says.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;

class GpuTimeOf : public Session {
 protected:
  void SetUp() override {
    setenv("SLUICE_GPU_TIME", "1", 1);
    Session::SetUp();
    fake::set_elapsed(kLaunchMs);
  }

  std::uint64_t gpu_ms() { return slot().gpu_ns.load() / kMs; }
  /// Whether the estimate is within 10 %. The host time that is taken off each sample makes it
  /// smaller, and the launches after the last draw are missing.
  bool is_ms(std::uint64_t ms) { return gpu_ms() * 10 >= ms * 9 && gpu_ms() * 10 <= ms * 11; }
  bool becomes_ms(std::uint64_t ms) {
    return eventually([&] { return is_ms(ms); });
  }
  /// Whether all launches come to count. Launches on, slowly, because one must be drawn before
  /// those in front of it count; on a busy machine that takes a while.
  bool counts_all() {
    return eventually([&] {
      launch();
      rest();
      return is_ms(launches() * 4);
    });
  }
  static void graph() { ::cuGraphLaunch(reinterpret_cast<CUgraphExec>(0x10), nullptr); }
  /// Lets what was measured be taken in.
  static void rest() { std::this_thread::sleep_for(20ms); }

  static constexpr float kLaunchMs = 4;
  static constexpr auto kSettle = 20ms;  ///< No launch is measured so long after a new stream.
};

TEST_F(GpuTimeOf, EveryLaunchCountsOnce) {
  attach("gate");
  for (int i = 0; i < 300'000; ++i) launch();
  EXPECT_TRUE(counts_all()) << gpu_ms() << " ms of " << launches() * 4;
}

TEST_F(GpuTimeOf, EveryPolicyCounts) {
  attach("none");
  for (int i = 0; i < 1000; ++i) launch();
  EXPECT_TRUE(counts_all()) << gpu_ms() << " ms of " << launches() * 4;
}

TEST_F(GpuTimeOf, ALaunchThatIsPacedCountsOnce) {
  attach("device:200us");
  outrank();
  for (int i = 0; i < 3000; ++i) launch();
  EXPECT_TRUE(counts_all()) << gpu_ms() << " ms of " << launches() * 4;
}

// Prevents: a program that launches a few long graphs has no GPU time.
TEST_F(GpuTimeOf, RareLaunchesCountEach) {
  attach("gate");
  for (int i = 0; i < 20; ++i) {
    graph();
    std::this_thread::sleep_for(30ms);
  }
  EXPECT_TRUE(becomes_ms(21 * 4)) << gpu_ms();
}

// Prevents: after a million short launches, a slow phase has no GPU time for minutes. Seen to fail
// without DrawRule.
TEST_F(GpuTimeOf, ALaunchAfterManyFastOnesIsDrawnSoon) {
  attach("gate");
  for (int i = 0; i < 3'000'000; ++i) launch();
  rest();
  const std::uint64_t before = gpu_ms();
  fake::set_elapsed(2000);
  for (int i = 0; i < 40; ++i) {
    kernel(5);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(eventually([&] { return gpu_ms() >= before + 20'000; })) << gpu_ms() - before;
}

TEST_F(GpuTimeOf, KindsOfLaunchesCountApart) {
  attach("gate");
  fake::set_elapsed(0.002F);
  for (int i = 0; i < 1'000'000; ++i) kernel(3);  // few of the next ones are drawn
  rest();
  const std::uint64_t before = gpu_ms();
  fake::set_elapsed(400);
  for (int i = 0; i < 50; ++i) graph();
  EXPECT_TRUE(eventually([&] { return gpu_ms() >= before + 19'000; })) << gpu_ms() - before;
  EXPECT_LE(gpu_ms(), before + 21'000);
}

TEST_F(GpuTimeOf, ThreadsCountEach) {
  attach("gate");
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      CUcontext context = nullptr;
      ::cuDevicePrimaryCtxRetain(&context, 0);
      ::cuCtxSetCurrent(context);
      CUstream stream = make_stream();
      launch(stream);
      std::this_thread::sleep_for(2 * kSettle);
      for (int k = 0; k < 100'000; ++k) launch(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(becomes_ms(launches() * 4)) << gpu_ms() << " ms of " << launches() * 4;
}

TEST_F(GpuTimeOf, ACapturedLaunchDoesNotCount) {
  attach("gate");
  CUstream stream = make_stream();
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  fake::clear();
  for (int i = 0; i < 1000; ++i) launch(stream);
  EXPECT_EQ(fake::count(Id::cuEventRecord), 0U) << "an event became part of the graph";
  CUgraph captured = nullptr;
  ASSERT_EQ(::cuStreamEndCapture(stream, &captured), CUDA_SUCCESS);
  rest();
  for (int i = 0; i < 6; ++i) {
    launch();
    rest();
  }
  EXPECT_EQ(counted(Count::kCaptured), 1000U);
  EXPECT_LE(gpu_ms(), 7U * 4);
}

// Prevents: time slices of others taken for this client's own work.
TEST_F(GpuTimeOf, LaunchesNextToAnotherJobCountByALaterSample) {
  attach("gate");
  Critical& critical = outrank();
  rest();
  CUstream stream = make_stream();
  kernel(8, stream);
  std::this_thread::sleep_for(2 * kSettle);
  rest();
  const std::uint64_t before = gpu_ms();
  fake::set_elapsed(40);
  std::thread other;
  fake::stall(Id::cuLaunchKernel);
  other = std::thread([stream] {
    CUcontext context = nullptr;
    ::cuDevicePrimaryCtxRetain(&context, 0);
    ::cuCtxSetCurrent(context);
    kernel(7, stream);
  });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  critical.begin();  // while the launch is measured
  fake::unstall();
  other.join();
  rest();
  EXPECT_EQ(gpu_ms(), before);
  critical.end();
  rest();
  fake::set_elapsed(kLaunchMs);
  kernel(7, stream);
  EXPECT_TRUE(eventually([&] { return gpu_ms() >= before + 7; })) << gpu_ms() - before;
  EXPECT_LE(gpu_ms(), before + 8);
}

// Prevents: the critical program itself, next to a best-effort one that never synchronises, has no
// GPU time: the two are always in a job.
TEST_F(GpuTimeOf, LaunchesOfAnOwnJobCountNextToHeldClients) {
  attach("gate", 200);
  critical_ = std::make_unique<Critical>(session_, 100);
  critical_->begin();
  EXPECT_TRUE(eventually([&] {
    kernel(7);
    rest();
    ::cuStreamSynchronize(nullptr);
    return launches() >= 6 && is_ms(launches() * 4);
  })) << gpu_ms()
      << " ms of " << launches() * 4;
}

// Prevents: a launch of another thread in the same stream taken for part of a sample.
TEST_F(GpuTimeOf, ALaunchOfAnotherThreadSpoilsASample) {
  attach("gate");
  for (int i = 0; i < 1'000'000; ++i) graph();  // the next ones take the hot path
  rest();
  const std::uint64_t before = gpu_ms();
  fake::set_elapsed(2000);  // much longer than the host's part in it
  fake::stall(Id::cuLaunchKernel);
  std::thread other([] {
    CUcontext context = nullptr;
    ::cuDevicePrimaryCtxRetain(&context, 0);
    ::cuCtxSetCurrent(context);
    kernel(9);
  });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  graph();
  fake::unstall();
  other.join();
  rest();
  EXPECT_EQ(gpu_ms(), before) << "kernel 9's sample contains the graph";
}

// The hot path takes no event, and the events of measured launches are used again.
TEST_F(GpuTimeOf, FewLaunchesAreMeasured) {
  attach("gate");
  for (int i = 0; i < 1'000'000; ++i) launch();
  rest();
  fake::clear();
  const std::uint64_t begin = base::monotonic_ns();
  for (int i = 0; i < 3'000'000; ++i) launch();
  const std::uint64_t took_ms = (base::monotonic_ns() - begin) / kMs;
  // A launch is drawn in 250 us, and one in about 16 of those is measured: one in 4 ms.
  EXPECT_LE(fake::count(Id::cuEventRecord), 2 * (100 + took_ms));
  EXPECT_LE(fake::count(Id::cuEventCreate), 2U * 64);
}

TEST_F(GpuTimeOf, CanBeSwitchedOff) {
  setenv("SLUICE_GPU_TIME", "0", 1);
  attach("gate");
  for (int i = 0; i < 1000; ++i) launch();
  rest();
  EXPECT_EQ(gpu_ms(), 0U);
  EXPECT_EQ(fake::count(Id::cuEventRecord), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
