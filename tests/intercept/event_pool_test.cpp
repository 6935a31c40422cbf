// Which context has which spare events, and when they are made. The test is the driver.
#include "intercept/pacing/event_pool.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "intercept/driver/driver_query.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

struct Gpu {
  std::set<CUevent> events;
  std::uintptr_t made = 0;   ///< With times,
  std::uintptr_t plain = 0;  ///< and without.
  CUcontext current = nullptr;
  std::function<void()> meanwhile;  ///< Runs once, while an event is made.
};
Gpu g_gpu;
constexpr std::uintptr_t kPlain = 1'000'000;  // their handles

ContextId context(std::uintptr_t handle, std::uint64_t number = 0) {
  return {reinterpret_cast<CUcontext>(handle), number};
}

class EventPoolOf : public testing::Test {
 protected:
  EventPoolOf() {
    g_gpu = {};
    g_process.driver_ready.store(true);
    Driver& driver = g_process.driver;
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    driver.cuCtxPushCurrent_v2 = [](CUcontext now) {
      g_gpu.current = now;
      return CUDA_SUCCESS;
    };
    driver.cuCtxPopCurrent_v2 = [](CUcontext*) {
      g_gpu.current = nullptr;
      return CUDA_SUCCESS;
    };
    driver.cuEventCreate = [](CUevent* event, unsigned flags) {
      EXPECT_NE(g_gpu.current, nullptr);
      if (flags != CU_EVENT_DEFAULT) {
        *event = reinterpret_cast<CUevent>(++g_gpu.plain + kPlain);
        return CUDA_SUCCESS;
      }
      *event = reinterpret_cast<CUevent>(++g_gpu.made);
      g_gpu.events.insert(*event);
      if (const auto meanwhile = std::exchange(g_gpu.meanwhile, nullptr)) meanwhile();
      return CUDA_SUCCESS;
    };
    driver.cuEventDestroy_v2 = [](CUevent event) {
      EXPECT_EQ(g_gpu.events.erase(event), 1U);
      return CUDA_SUCCESS;
    };
  }
  static std::size_t take_all(EventPool& pool) {
    std::size_t count = 0;
    while (pool.take() != nullptr) ++count;
    return count;
  }
  EventPools pools_{idle_worker(), false};
};

TEST_F(EventPoolOf, ANewContextIsFull) {
  EventPool& pool = pools_.of(context(1)).timed;
  EXPECT_EQ(g_gpu.made, 32U);
  EXPECT_EQ(g_gpu.current, nullptr) << "the program's context is current again";
  EXPECT_EQ(&pools_.of(context(1)).timed, &pool);
  EXPECT_EQ(g_gpu.made, 32U);
  EXPECT_NE(&pools_.of(context(2)).timed, &pool);
  EXPECT_EQ(take_all(pool), 32U);
  EXPECT_EQ(g_gpu.made, 64U) << "a launch makes none";
  EXPECT_EQ(g_gpu.plain, 64U);
}

TEST_F(EventPoolOf, OneWithFewIsFilled) {
  EventPool& pool = pools_.of(context(1)).timed;
  for (int left = 31; left >= 8; --left) EXPECT_NE(pool.take(), nullptr);
  pools_.fill();
  EXPECT_EQ(g_gpu.made, 32U);
  EXPECT_NE(pool.take(), nullptr);
  pools_.fill();
  EXPECT_EQ(take_all(pool), 32U);
}

// Prevents: a stream that never has an event, because the poller sleeps.
TEST_F(EventPoolOf, TheTakerOfOneOfTheLastWakesThePoller) {
  static Worker poller("poller", [] { return Worker::Sleep{1'000'000'000, true}; });
  EventPools pools(poller, false);
  EventPool& pool = pools.of(context(1)).timed;
  for (int left = 31; left >= 8; --left) EXPECT_NE(pool.take(), nullptr);
  EXPECT_FALSE(poller.started());
  EXPECT_NE(pool.take(), nullptr);
  EXPECT_TRUE(poller.started());
}

TEST_F(EventPoolOf, WhatIsGivenBackIsTakenAgain) {
  EventPool& pool = pools_.of(context(1)).timed;
  CUevent const event = pool.take();
  pool.give_back(event);
  EXPECT_EQ(pool.take(), event);
  pool.give_back(event);
  for (std::uintptr_t i = 101; i <= 140; ++i) {
    g_gpu.events.insert(reinterpret_cast<CUevent>(i));
    pool.give_back(reinterpret_cast<CUevent>(i));
  }
  EXPECT_EQ(g_gpu.events.size(), 64U) << "more than that are destroyed";
}

// Prevents: an event of a context that has ended, or of another one, recorded in a stream.
TEST_F(EventPoolOf, AContextTakesItsEventsAlong) {
  EventPool& first = pools_.of(context(1)).timed;
  EventPool& second = pools_.of(context(2)).timed;
  pools_.context_ended(context(1));
  EXPECT_EQ(first.take(), nullptr);
  pools_.fill();
  EXPECT_EQ(first.take(), nullptr);
  EXPECT_EQ(g_gpu.events.size(), 64U) << "their end is the context's";
  EXPECT_EQ(&pools_.of(context(3)).timed, &first) << "pools would pile up";
  EXPECT_EQ(take_all(first), 32U);
  EXPECT_EQ(take_all(second), 32U);
  pools_.context_ended({});
  pools_.fill();
  EXPECT_EQ(take_all(first) + take_all(second), 0U);
}

// Prevents: events of a context that has ended unseen are recorded in the next one, which has its
// handle.
TEST_F(EventPoolOf, OneWithTheHandleOfAnotherHasItsOwnEvents) {
  EventPool& pool = pools_.of(context(1, 1)).timed;
  CUevent const old = pool.take();
  EXPECT_EQ(&pools_.of(context(1, 2)).timed, &pool) << "pools would pile up";
  EXPECT_EQ(g_gpu.made, 64U);
  pools_.context_ended(context(1, 1));
  for (std::size_t left = 32; left != 0; --left) EXPECT_GT(pool.take(), old) << left;
  EXPECT_EQ(pool.take(), nullptr);
}

TEST_F(EventPoolOf, AContextMayEndWhileAnEventIsMade) {
  EventPool& pool = pools_.of(context(1)).timed;
  take_all(pool);
  g_gpu.meanwhile = [this] { pools_.context_ended(context(1)); };
  pools_.fill();
  EXPECT_EQ(g_gpu.made, 33U);
  EXPECT_EQ(pool.take(), nullptr);
}

TEST_F(EventPoolOf, NoneIsMadeInAContextThatIsEnding) {
  EventPool& pool = pools_.of(context(1)).timed;
  take_all(pool);
  {
    const QueryBan ending = QueryBan::about_context(context(1).handle);
    pools_.fill();
    EXPECT_EQ(pool.take(), nullptr);
  }
  pools_.fill();
  EXPECT_EQ(take_all(pool), 32U);
}

constexpr std::uint64_t kLater = Channels::kSettleNs + 1;

TEST(ChannelsOf, StreamsShareThemWhereThereAreMore) {
  struct Case {
    const char* connections;
    bool under_mps;
    std::size_t channels;
  };
  for (const Case& each :
       {Case{nullptr, false, 8}, Case{nullptr, true, 2}, Case{"16", true, 16}, Case{"1", false, 1},
        Case{"99", false, 32}, Case{"0", false, 8}, Case{"many", true, 2}, Case{"", false, 8}}) {
    Channels channels;
    channels.begin(each.connections, each.under_mps);
    const std::uint64_t begin = base::monotonic_ns();
    channels.note(each.channels);
    EXPECT_FALSE(channels.shared(base::monotonic_ns() + kLater)) << each.channels;
    channels.note(each.channels + 1);
    channels.note(each.channels);
    EXPECT_TRUE(channels.shared(begin + Channels::kAgainNs)) << "it may happen again";
    EXPECT_FALSE(channels.shared(base::monotonic_ns() + Channels::kAgainNs));
  }
}

// Prevents: of a program that begins with many streams at once, the first is timed, and others that
// share its channel wait behind it.
TEST(ChannelsOf, ThoseOfAProgramThatBeginsMayBeShared) {
  Channels channels;
  channels.begin(nullptr, false);
  for (std::size_t i = 1; i <= 8; ++i) {
    channels.note(i);
    EXPECT_TRUE(channels.shared(base::monotonic_ns()));
  }
  const std::uint64_t settled = base::monotonic_ns() + kLater;
  EXPECT_FALSE(channels.shared(settled));
  channels.note(7);
  channels.note(8);
  EXPECT_FALSE(channels.shared(settled)) << "as many as before";
}

// Prevents: a program that marks its jobs, and has no list of busy streams, is timed.
TEST(ChannelsOf, AnyStreamOfAProgramThatMarksItsJobsMayHaveWork) {
  Channels channels;
  channels.begin("2", false);
  channels.set_known(3);
  EXPECT_FALSE(channels.shared(base::monotonic_ns()));
  channels.note_known();
  EXPECT_TRUE(channels.shared(base::monotonic_ns() + kLater));
}

}  // namespace
}  // namespace sluice::intercept::test
