// Which context has which spare events, and when they are made. The test is the driver.
#include "intercept/pacing/event_pool.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>

#include "intercept/driver/driver_query.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

struct Gpu {
  std::set<CUevent> events;
  std::uintptr_t made = 0;
  CUcontext current = nullptr;
  std::function<void()> meanwhile;  ///< Runs once, while an event is made.
};
Gpu g_gpu;

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
    driver.cuEventCreate = [](CUevent* event, unsigned) {
      EXPECT_NE(g_gpu.current, nullptr);
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
  EventPools pools_{idle_worker()};
};

TEST_F(EventPoolOf, ANewContextIsFull) {
  EventPool& pool = pools_.of(context(1));
  EXPECT_EQ(g_gpu.made, 32U);
  EXPECT_EQ(g_gpu.current, nullptr) << "the program's context is current again";
  EXPECT_EQ(&pools_.of(context(1)), &pool);
  EXPECT_EQ(g_gpu.made, 32U);
  EXPECT_NE(&pools_.of(context(2)), &pool);
  EXPECT_EQ(take_all(pool), 32U);
  EXPECT_EQ(g_gpu.made, 64U) << "a launch makes none";
}

TEST_F(EventPoolOf, OneWithFewIsFilled) {
  EventPool& pool = pools_.of(context(1));
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
  EventPools pools(poller);
  EventPool& pool = pools.of(context(1));
  for (int left = 31; left >= 8; --left) EXPECT_NE(pool.take(), nullptr);
  EXPECT_FALSE(poller.started());
  EXPECT_NE(pool.take(), nullptr);
  EXPECT_TRUE(poller.started());
}

TEST_F(EventPoolOf, WhatIsGivenBackIsTakenAgain) {
  EventPool& pool = pools_.of(context(1));
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
  EventPool& first = pools_.of(context(1));
  EventPool& second = pools_.of(context(2));
  pools_.context_ended(context(1));
  EXPECT_EQ(first.take(), nullptr);
  pools_.fill();
  EXPECT_EQ(first.take(), nullptr);
  EXPECT_EQ(g_gpu.events.size(), 64U) << "their end is the context's";
  EXPECT_EQ(&pools_.of(context(3)), &first) << "pools would pile up";
  EXPECT_EQ(take_all(first), 32U);
  EXPECT_EQ(take_all(second), 32U);
  pools_.context_ended({});
  pools_.fill();
  EXPECT_EQ(take_all(first) + take_all(second), 0U);
}

// Prevents: events of a context that has ended unseen are recorded in the next one, which has its
// handle.
TEST_F(EventPoolOf, OneWithTheHandleOfAnotherHasItsOwnEvents) {
  EventPool& pool = pools_.of(context(1, 1));
  CUevent const old = pool.take();
  EXPECT_EQ(&pools_.of(context(1, 2)), &pool) << "pools would pile up";
  EXPECT_EQ(g_gpu.made, 64U);
  pools_.context_ended(context(1, 1));
  for (std::size_t left = 32; left != 0; --left) EXPECT_GT(pool.take(), old) << left;
  EXPECT_EQ(pool.take(), nullptr);
}

TEST_F(EventPoolOf, AContextMayEndWhileAnEventIsMade) {
  EventPool& pool = pools_.of(context(1));
  take_all(pool);
  g_gpu.meanwhile = [this] { pools_.context_ended(context(1)); };
  pools_.fill();
  EXPECT_EQ(g_gpu.made, 33U);
  EXPECT_EQ(pool.take(), nullptr);
}

TEST_F(EventPoolOf, NoneIsMadeInAContextThatIsEnding) {
  EventPool& pool = pools_.of(context(1));
  take_all(pool);
  {
    const QueryBan ending = QueryBan::about_context(context(1).handle);
    pools_.fill();
    EXPECT_EQ(pool.take(), nullptr);
  }
  pools_.fill();
  EXPECT_EQ(take_all(pool), 32U);
}

}  // namespace
}  // namespace sluice::intercept::test
