// libsluice_cupti.so on a recorded CUPTI. A process collects once: ctest gives each test its own.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "base/clock.hpp"
#include "base/kernel_collector.h"
#include "tests/support/forked_child.hpp"
#include "tests/support/standins/fakecupti.hpp"

namespace {

using sluice::test::ForkedChild;

/// A kernel with a name of its own: CUPTI's ends with the call.
struct Reported : SluiceKernel {
  std::string text;
};
std::mutex g_mutex;
std::vector<Reported> g_reported;

void report(const SluiceKernel* kernel) {
  const std::lock_guard lock(g_mutex);
  g_reported.push_back({*kernel, kernel->name});
}

class CollectorTest : public testing::Test {
 protected:
  void SetUp() override {
    void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
    ASSERT_NE(cupti, nullptr) << dlerror();
    const auto fake = reinterpret_cast<decltype(&fake_cupti)>(dlsym(cupti, "fake_cupti"));
    ASSERT_NE(fake, nullptr) << "this is not the recorded CUPTI";
    fake_ = fake();
    void* library = dlopen(SLUICE_COLLECTOR_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto find = [library](auto& pointer, const char* name) {
      pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(dlsym(library, name));
      ASSERT_NE(pointer, nullptr) << name;
    };
    find(start_, "sluice_collector_start");
    find(begin_, "sluice_collector_begin");
    find(end_, "sluice_collector_end");
    find(flush_, "sluice_collector_flush");
  }

  void start() { ASSERT_EQ(start_(&report), nullptr); }

  std::uint32_t launch(std::uint64_t correlation, std::uint64_t stream = 7) {
    begin_(correlation);
    const std::uint32_t call = fake_->call();
    end_(stream);
    return call;
  }

  const FakeCupti* fake_ = nullptr;
  decltype(&sluice_collector_start) start_ = nullptr;
  decltype(&sluice_collector_begin) begin_ = nullptr;
  decltype(&sluice_collector_end) end_ = nullptr;
  decltype(&sluice_collector_flush) flush_ = nullptr;
};

TEST_F(CollectorTest, AKernelIsReportedUnderItsLaunch) {
  start();
  const std::uint32_t call = launch(41);
  fake_->kernel(call, 1000, 3000, 7, 0, "_Z4spinv");
  EXPECT_TRUE(g_reported.empty());
  flush_();
  ASSERT_EQ(g_reported.size(), 1U);
  const Reported& kernel = g_reported[0];
  EXPECT_EQ(kernel.begin_ns, 1000U);
  EXPECT_EQ(kernel.end_ns, 3000U);
  EXPECT_EQ(kernel.correlation, 41U);
  EXPECT_EQ(kernel.stream, 7U);
  EXPECT_EQ(kernel.node, 0U);
  EXPECT_EQ(kernel.text, "_Z4spinv");
}

// The shape decides how much of the GPU a kernel can fill.
TEST_F(CollectorTest, AKernelsShapeIsReported) {
  start();
  fake_->kernel(launch(1), 1, 2, 7, 0, "k");
  flush_();
  ASSERT_EQ(g_reported.size(), 1U);
  const Reported& kernel = g_reported[0];
  EXPECT_EQ(std::vector(kernel.grid, kernel.grid + 3), (std::vector<std::uint32_t>{6, 5, 4}));
  EXPECT_EQ(std::vector(kernel.block, kernel.block + 3), (std::vector<std::uint32_t>{32, 3, 2}));
  EXPECT_EQ(kernel.registers, 40U);
  EXPECT_EQ(kernel.shared_bytes, 1000U + 24U) << "static and dynamic";
}

// An operator that launches several kernels is one bracket.
TEST_F(CollectorTest, AllLaunchesOfOneBracketAreReportedUnderIt) {
  start();
  begin_(5);
  const std::uint32_t first = fake_->call();
  const std::uint32_t second = fake_->call();
  end_(7);
  fake_->kernel(first, 1, 2, 7, 0, "k");
  fake_->kernel(second, 3, 4, 7, 0, "k");
  flush_();
  ASSERT_EQ(g_reported.size(), 2U);
  EXPECT_EQ(g_reported[0].correlation, 5U);
  EXPECT_EQ(g_reported[1].correlation, 5U);
}

TEST_F(CollectorTest, TimesAreOfTheMonotonicClock) {
  start();
  const std::uint64_t before = sluice::base::monotonic_ns();
  const std::uint64_t now = fake_->now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, sluice::base::monotonic_ns());
}

// A launch that CUPTI has no time for (no room on the GPU) must not become an execution at time 0.
TEST_F(CollectorTest, KernelsWithoutTimesAreLeftOut) {
  start();
  fake_->kernel(launch(1), 0, 0, 7, 0, "k");
  fake_->kernel(launch(2), 5, 6, 7, 0, "k");
  flush_();
  ASSERT_EQ(g_reported.size(), 1U);
  EXPECT_EQ(g_reported[0].correlation, 2U);
}

// A launch that went past the hooks is nobody's; it must not be taken for the last one that did
// not.
TEST_F(CollectorTest, AKernelWithoutALaunchOfOursIsReportedAsNobodys) {
  start();
  launch(1);
  fake_->kernel(fake_->call(), 5, 6, 7, 0, "k");
  flush_();
  ASSERT_EQ(g_reported.size(), 1U);
  EXPECT_EQ(g_reported[0].correlation, 0U);
}

TEST_F(CollectorTest, AGraphsKernelsBelongToItsLaunch) {
  start();
  const std::uint32_t call = launch(3);
  for (std::uint64_t node = 1; node <= 1000; ++node)
    fake_->kernel(call, node, node + 1, 7, node, "k");
  flush_();
  ASSERT_EQ(g_reported.size(), 1000U);
  for (std::uint64_t node = 1; node <= 1000; ++node) {
    EXPECT_EQ(g_reported[node - 1].correlation, 3U);
    EXPECT_EQ(g_reported[node - 1].node, node);
  }
}

// CUPTI's own numbers of streams are not those of the driver (31 was 30 on an H200).
TEST_F(CollectorTest, StreamsAreNamedAsTheDriverNamesThem) {
  start();
  fake_->kernel(launch(1, 31), 1, 2, 30, 0, "k");
  fake_->kernel(launch(2, 35), 3, 4, 34, 0, "k");
  fake_->kernel(launch(3, 31), 5, 6, 30, 900, "in a graph");
  fake_->kernel(launch(4, 31), 7, 8, 50, 901, "in a branch of a graph");
  flush_();
  ASSERT_EQ(g_reported.size(), 4U);
  EXPECT_EQ(g_reported[0].stream, 31U);
  EXPECT_EQ(g_reported[1].stream, 35U);
  EXPECT_EQ(g_reported[2].stream, 31U);
  EXPECT_EQ(g_reported[3].stream, 50U);
}

// CUPTI keeps records of launches that wait; a process whose launches wait for long must not grow.
TEST_F(CollectorTest, WhenAllBuffersAreWithCuptiItGetsNoMore) {
  start();
  void (*const hold)(bool) = fake_->hold_buffers;
  hold(true);
  const std::uint32_t call = launch(1);
  constexpr int kMore = 200000;  // records of 200 bytes: more than 32 MiB
  for (int i = 0; i < kMore; ++i) fake_->kernel(call, 1, 2, 7, 1, "k");
  EXPECT_GT(fake_->dropped(), 0U);
  hold(false);
  flush_();
  EXPECT_EQ(g_reported.size() + fake_->dropped(), static_cast<std::size_t>(kMore));
  const std::uint64_t dropped = fake_->dropped();
  for (int i = 0; i < kMore; ++i) fake_->kernel(call, 1, 2, 7, 1, "k");
  EXPECT_EQ(fake_->dropped(), dropped) << "buffers that came back are not used again";
}

TEST_F(CollectorTest, WhereCuptiRefusesTheReasonIsToldAndNothingElseHappens) {
  fake_->refuse(true);
  const char* why = start_(&report);
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::string(why).find("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"), std::string::npos) << why;
  EXPECT_EQ(fake_->subscribers(), 0) << "left in the way of another profiler";
  launch(1);
  flush_();
  EXPECT_TRUE(g_reported.empty());
}

TEST_F(CollectorTest, LaunchesOfManyThreadsAreReportedOnceEach) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 5000;
  start();
  std::atomic<bool> done{false};
  std::thread flusher([&] {
    while (!done.load()) flush_();
  });
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t correlation = t * kEach + i + 1;
        fake_->kernel(launch(correlation), correlation, correlation + 1, 7, 0, "k");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  flusher.join();
  flush_();
  EXPECT_EQ(fake_->dropped(), 0U);
  std::set<std::uint64_t> seen;
  for (const Reported& kernel : g_reported) {
    EXPECT_EQ(kernel.correlation, kernel.begin_ns);
    EXPECT_TRUE(seen.insert(kernel.correlation).second);
  }
  EXPECT_EQ(seen.size(), kThreads * kEach);
}

// exit() of a program whose launches are parked must not wait for CUPTI.
TEST_F(CollectorTest, AFlushThatDoesNotComeBackDoesNotHoldUpTheExit) {
  ForkedChild child([this] {
    start();
    fake_->block_flushes(true);
    std::thread([this] { flush_(); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::exit(42);
    return 0;
  });
  EXPECT_EQ(child.wait(), 42);
}

// What the program has waited for before it left is in the trace.
TEST_F(CollectorTest, ExitWaitsForTheNextFlush) {
  sluice::base::Pipe pipe;
  static int out = -1;
  out = pipe.write.get();
  const ForkedChild child([this] {
    const auto send = [](const SluiceKernel* kernel) {
      const auto byte = static_cast<char>(kernel->correlation);
      if (write(out, &byte, 1) != 1) _exit(1);
    };
    if (start_(send) != nullptr) return 1;
    std::thread([this] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        flush_();
      }
    }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(70));
    fake_->kernel(launch(9), 1, 2, 7, 0, "k");
    std::exit(0);
    return 0;
  });
  pipe.write.reset();
  char byte = 0;
  EXPECT_EQ(read(pipe.read.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 9);
}

// In a forked child CUPTI does not work: a flush there may hang.
TEST_F(CollectorTest, AForkedChildDoesNotTouchCupti) {
  start();
  fake_->block_flushes(true);
  ForkedChild child([this] {
    launch(1);
    flush_();
    return 42;
  });
  EXPECT_EQ(child.wait(), 42);
}

}  // namespace
