// Which samples of a launch count, and what becomes of their events. The test is the driver.
#include "intercept/pacing/sampler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "intercept/driver/threads.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

struct Gpu {
  std::set<CUevent> events;
  std::uintptr_t made = 0;
  std::uintptr_t creations_that_work = ~std::uintptr_t{0};
  CUresult record = CUDA_SUCCESS;
  bool done = true;
  float ms = 0.05F;
};
Gpu g_gpu;

class Samples : public testing::Test {
 protected:
  Samples() {
    g_gpu = {};
    g_process.driver_ready.store(true);
    g_process.driver.cuEventCreate = [](CUevent* event, unsigned) {
      if (g_gpu.made == g_gpu.creations_that_work) return CUDA_ERROR_OUT_OF_MEMORY;
      *event = reinterpret_cast<CUevent>(++g_gpu.made);
      g_gpu.events.insert(*event);
      return CUDA_SUCCESS;
    };
    g_process.driver.cuEventDestroy_v2 = [](CUevent event) {
      EXPECT_EQ(g_gpu.events.erase(event), 1U);
      return CUDA_SUCCESS;
    };
    g_process.driver.cuEventRecord = [](CUevent, CUstream) { return g_gpu.record; };
    g_process.driver.cuEventQuery = [](CUevent) {
      return g_gpu.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    g_process.driver.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
      *ms = g_gpu.ms;
      return CUDA_SUCCESS;
    };
  }
  /// Launches of the kind, until one is measured. They are behind work, so that none of the host's
  /// time is in the sample.
  bool launch(LaunchDuration& of, std::optional<std::uint64_t> quiet = 1) {
    g_gpu.done = false;
    bool begun = false;
    for (int i = 0; i < 1000 && !begun; ++i) begun = sampler_.begin(of, nullptr);
    if (!begun) return false;
    sampler_.begun_while(quiet);
    sampler_.end(of, nullptr, true);
    return true;
  }
  bool collect(std::optional<std::uint64_t> before = 1, std::optional<std::uint64_t> now = 1) {
    g_gpu.done = true;
    sampler_.collect({before, now, std::nullopt}, [](LaunchDuration&) {});
    return sampler_.under_way();
  }

  Sampler sampler_;
  LaunchDuration duration_;
};

TEST_F(Samples, ALaunchIsMeasured) {
  EXPECT_TRUE(launch(duration_));
  EXPECT_TRUE(sampler_.under_way());
  EXPECT_FALSE(collect());
  EXPECT_TRUE(duration_.known());
  EXPECT_EQ(duration_.ns(), 50'000U);
}

// Prevents: a thread that lost the processor between the two records makes a kernel of 50 us one of
// 10 ms, with a wait in front and behind from then on.
TEST_F(Samples, WhatMayHoldMuchOfTheHostsTimeIsNone) {
  ASSERT_TRUE(sampler_.begin(duration_, nullptr));
  std::this_thread::sleep_for(1ms);  // the GPU is idle, and waits for the launch
  sampler_.end(duration_, nullptr, true);
  EXPECT_FALSE(collect());
  EXPECT_FALSE(duration_.known());
  EXPECT_FALSE(duration_.is_sampled()) << "its kind is never measured again";
}

// Prevents: the time of another thread's launch taken for part of this one.
TEST_F(Samples, ALaunchInBetweenSpoilsTheSample) {
  LaunchDuration other;
  g_gpu.done = false;
  ASSERT_TRUE(sampler_.begin(duration_, nullptr));
  EXPECT_FALSE(sampler_.begin(other, nullptr));
  sampler_.end(duration_, nullptr, true);
  EXPECT_FALSE(sampler_.under_way());
  EXPECT_TRUE(launch(duration_)) << "the next one is measured";
}

// Prevents: a thread that is cancelled in a launch ends the learning of its stream and of its kind.
TEST_F(Samples, ThatOfACancelledThreadIsGivenUp) {
  const auto begin_and_vanish = [this] {
    pid_t thread = 0;
    std::thread([&] {
      thread = gettid();
      EXPECT_TRUE(sampler_.begin(duration_, nullptr));
    }).join();
    while (!ThreadMarks::is_gone(thread)) std::this_thread::yield();
  };
  LaunchDuration other;
  begin_and_vanish();
  EXPECT_TRUE(launch(other));
  EXPECT_FALSE(duration_.is_sampled());
  begin_and_vanish();
  sampler_.end_stream(false);
  EXPECT_FALSE(duration_.is_sampled()) << "its stream ended first";
}

// Prevents: two threads in one sample, because the first is taken for cancelled.
TEST_F(Samples, ThatOfALivingThreadIsKept) {
  LaunchDuration other;
  ASSERT_TRUE(sampler_.begin(duration_, nullptr));
  std::thread([&] { EXPECT_FALSE(launch(other)); }).join();
  EXPECT_TRUE(duration_.is_sampled());
}

// The pair would be that of the launch before, or of none.
TEST_F(Samples, WhatCouldNotBeRecordedIsNone) {
  g_gpu.record = CUDA_ERROR_UNKNOWN;
  EXPECT_FALSE(launch(duration_));
  g_gpu.record = CUDA_SUCCESS;
  g_gpu.done = false;
  ASSERT_TRUE(sampler_.begin(duration_, nullptr));
  g_gpu.record = CUDA_ERROR_UNKNOWN;
  sampler_.end(duration_, nullptr, true);
  EXPECT_FALSE(sampler_.under_way());
  EXPECT_FALSE(duration_.is_sampled());
}

TEST_F(Samples, AnEventWithoutItsPairIsNotKept) {
  g_gpu.creations_that_work = 1;
  EXPECT_FALSE(launch(duration_));
  EXPECT_TRUE(g_gpu.events.empty());
}

// Prevents: a pair used again before its sample was taken in.
TEST_F(Samples, SixtyFourAreUnderWayAtMost) {
  std::vector<LaunchDuration> durations(65);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_TRUE(launch(durations[i])) << i;
  EXPECT_FALSE(launch(durations[64]));
  EXPECT_FALSE(collect());
  EXPECT_TRUE(launch(durations[64]));
}

// Prevents: a kernel next to another client's taken for twice as long as it is.
TEST_F(Samples, NextToAnotherClientTheyAreBounds) {
  launch(duration_, std::nullopt);
  collect(std::nullopt, std::nullopt);
  EXPECT_FALSE(duration_.known());
  EXPECT_EQ(duration_.ns(), 50'000U);
  launch(duration_, 1);
  collect(1, std::nullopt);
  EXPECT_FALSE(duration_.known()) << "a job began meanwhile";
  launch(duration_, std::nullopt);
  collect(2, 3);
  EXPECT_FALSE(duration_.known()) << "one came and went before it was seen to begin";
  launch(duration_, std::nullopt);
  collect(3, 3);
  EXPECT_TRUE(duration_.known()) << "nobody ran since before it began";
}

TEST_F(Samples, EventsEndWithTheStream) {
  launch(duration_);
  sampler_.end_stream(false);
  EXPECT_TRUE(g_gpu.events.empty());
  EXPECT_FALSE(duration_.is_sampled());
  EXPECT_FALSE(launch(duration_)) << "a launch that comes late";
  sampler_.restart();
  EXPECT_TRUE(launch(duration_)) << "for another stream";
  sampler_.end_stream(true);
  EXPECT_EQ(g_gpu.events.size(), 2U) << "those of a context that has ended are not touched";
}

}  // namespace
}  // namespace sluice::intercept::test
