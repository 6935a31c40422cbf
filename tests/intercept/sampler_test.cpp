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
  CUresult record = CUDA_SUCCESS;
  bool done = true;
  float ms = 0.05F;
};
Gpu g_gpu;

class Samples : public testing::Test {
 protected:
  Samples() {
    g_gpu = {};
    for (std::uintptr_t i = 1; i <= kEvents; ++i) give(i);
    g_process.driver_ready.store(true);
    g_process.driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    g_process.driver.cuEventRecord = [](CUevent, CUstream) { return g_gpu.record; };
    g_process.driver.cuEventQuery = [](CUevent) {
      return g_gpu.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    g_process.driver.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
      *ms = g_gpu.ms;
      return CUDA_SUCCESS;
    };
  }
  static constexpr std::uintptr_t kEvents = 8;
  void give(std::uintptr_t event) { events_.timed.give_back(reinterpret_cast<CUevent>(event)); }
  std::set<CUevent> take_all() {
    std::set<CUevent> events;
    while (CUevent const event = events_.timed.take()) events.insert(event);
    return events;
  }
  bool begin(LaunchDuration& of) { return sampler_.begin(of, nullptr, events_); }
  /// Launches of the kind, until one is measured. They are behind work, so that none of the host's
  /// time is in the sample.
  bool launch(LaunchDuration& of, std::optional<std::uint64_t> quiet = 1) {
    g_gpu.done = false;
    bool begun = false;
    for (int i = 0; i < 1000 && !begun; ++i) begun = begin(of);
    if (!begun) return false;
    sampler_.begun_while(quiet);
    sampler_.end(of, nullptr, true);
    return true;
  }
  bool collect(std::optional<std::uint64_t> before = 1, std::optional<std::uint64_t> now = 1) {
    g_gpu.done = true;
    sampler_.collect({before, now, std::nullopt}, events_, [](LaunchDuration&) {});
    return sampler_.under_way();
  }

  ContextEvents events_{idle_worker()};
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

// Prevents: streams that share a channel wait for each other, a program whose kernels wait for each
// other for ever.
TEST_F(Samples, NoneHasTimesWhereStreamsShareAChannel) {
  events_.channels.begin("4", false);
  events_.channels.note(5);
  const auto plain = [](std::uintptr_t i) { return reinterpret_cast<CUevent>(1000 + i); };
  for (std::uintptr_t i = 1; i <= 8; ++i) events_.plain.give_back(plain(i));
  EXPECT_TRUE(launch(duration_));
  EXPECT_FALSE(launch(duration_)) << "one at a time is enough";
  EXPECT_EQ(sampler_.progress_ns(0), sampler_.progress_ns(1)) << "a launch waits";
  EXPECT_FALSE(collect());
  EXPECT_FALSE(duration_.known());
  EXPECT_GT(sampler_.progress_ns(0), 0U) << "the stream makes progress";
  EXPECT_EQ(take_all().size(), kEvents);
  for (std::uintptr_t i = 1; i <= kEvents; ++i) give(i);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(launch(duration_));
    EXPECT_FALSE(collect());
  }
  EXPECT_FALSE(duration_.known()) << "where there are few channels, whatever its kind does";
  events_.channels.begin("4", false);
  EXPECT_TRUE(launch(duration_));
  EXPECT_FALSE(collect());
  EXPECT_TRUE(duration_.known());
}

// Prevents: other streams wait for a kernel that runs for as long as its program.
TEST_F(Samples, WithEightChannelsKindsThatEndHaveTimes) {
  for (std::uintptr_t i = 1; i <= 8; ++i)
    events_.plain.give_back(reinterpret_cast<CUevent>(1000 + i));
  events_.channels.begin("8", false);
  events_.channels.note(9);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(launch(duration_));
    EXPECT_FALSE(collect());
    EXPECT_FALSE(duration_.known());
  }
  EXPECT_TRUE(launch(duration_));
  EXPECT_FALSE(collect());
  EXPECT_TRUE(duration_.known());
}

// Prevents: a thread that lost the processor between the two records makes a kernel of 50 us one of
// 10 ms, with a wait in front and behind from then on.
TEST_F(Samples, WhatMayHoldMuchOfTheHostsTimeIsNone) {
  ASSERT_TRUE(begin(duration_));
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
  ASSERT_TRUE(begin(duration_));
  EXPECT_FALSE(begin(other));
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
      EXPECT_TRUE(begin(duration_));
    }).join();
    while (!ThreadMarks::is_gone(thread)) std::this_thread::yield();
  };
  LaunchDuration other;
  begin_and_vanish();
  EXPECT_TRUE(launch(other));
  EXPECT_FALSE(duration_.is_sampled());
  begin_and_vanish();
  sampler_.end_stream({&events_.timed, {}}, {&events_.plain, {}});
  EXPECT_FALSE(duration_.is_sampled()) << "its stream ended first";
}

// Prevents: two threads in one sample, because the first is taken for cancelled.
TEST_F(Samples, ThatOfALivingThreadIsKept) {
  LaunchDuration other;
  ASSERT_TRUE(begin(duration_));
  std::thread([&] { EXPECT_FALSE(launch(other)); }).join();
  EXPECT_TRUE(duration_.is_sampled());
}

// The pair would be that of the launch before, or of none.
TEST_F(Samples, WhatCouldNotBeRecordedIsNone) {
  g_gpu.record = CUDA_ERROR_UNKNOWN;
  EXPECT_FALSE(launch(duration_));
  g_gpu.record = CUDA_SUCCESS;
  g_gpu.done = false;
  ASSERT_TRUE(begin(duration_));
  g_gpu.record = CUDA_ERROR_UNKNOWN;
  sampler_.end(duration_, nullptr, true);
  EXPECT_FALSE(sampler_.under_way());
  EXPECT_FALSE(duration_.is_sampled());
}

TEST_F(Samples, AnEventWaitsForItsPair) {
  take_all();
  EXPECT_FALSE(launch(duration_));
  give(1);
  EXPECT_FALSE(launch(duration_));
  give(2);
  EXPECT_TRUE(launch(duration_));
  EXPECT_FALSE(collect());
  EXPECT_EQ(take_all().size(), 2U);
}

// Prevents: a pair used again before its sample was taken in.
TEST_F(Samples, SixtyFourAreUnderWayAtMost) {
  std::vector<LaunchDuration> durations(65);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(launch(durations[i])) << i;
    give(100 + 2 * i);
    give(101 + 2 * i);
  }
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

TEST_F(Samples, EventsGoBackWhenTheStreamEnds) {
  launch(duration_);
  sampler_.end_stream({&events_.timed, {}}, {&events_.plain, {}});
  EXPECT_EQ(take_all().size(), kEvents);
  EXPECT_FALSE(duration_.is_sampled());
  for (std::uintptr_t i = 1; i <= kEvents; ++i) give(i);
  EXPECT_FALSE(launch(duration_)) << "a launch that comes late";
  sampler_.restart();
  EXPECT_TRUE(launch(duration_)) << "for another stream";
  sampler_.end_stream({}, {});
  EXPECT_EQ(take_all().size(), kEvents - 2) << "those of a context that has ended are gone";
}

// Prevents: two streams that record the same event.
TEST_F(Samples, TheEventsOfALaunchThatOutlastsItsStreamDoNot) {
  ASSERT_TRUE(begin(duration_));
  sampler_.end_stream({&events_.timed, {}}, {&events_.plain, {}});
  EXPECT_EQ(take_all().size(), kEvents - 2);
}

}  // namespace
}  // namespace sluice::intercept::test
