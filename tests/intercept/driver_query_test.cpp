// A thread that ends a stream waits for the query of that stream, and for no other.
#include "intercept/driver/driver_query.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace sluice::intercept {
namespace {

using namespace std::chrono_literals;

template <class Handle>
Handle handle(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

// Two threads of ours query: the polling and the announcing one. Prevents: the end of one query
// counts as the end of both, and a stream is destroyed while the driver is queried about it. Seen
// to fail with one note for both.
TEST(DriverQuery, OneThatEndsDoesNotEndTheOther) {
  std::optional<DriverQuery> first;
  first.emplace(handle<CUcontext>(1), handle<CUstream>(16));
  ASSERT_TRUE(*first);
  {
    const DriverQuery second(handle<CUcontext>(2), handle<CUstream>(32));
    EXPECT_TRUE(second);
  }
  std::atomic<bool> ended{false};
  std::thread ending([&] {
    const QueryBan quiet = QueryBan::about_stream(handle<CUstream>(16));
    ended.store(true);
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(ended.load());
  first.reset();
  ending.join();
  EXPECT_TRUE(ended.load());
}

// The legacy stream sees all streams, so a question about it is one about each.
TEST(DriverQuery, OneAboutTheLegacyStreamIsAboutEach) {
  for (CUstream legacy : {handle<CUstream>(0), CU_STREAM_LEGACY}) {
    std::optional<DriverQuery> asked;
    asked.emplace(handle<CUcontext>(1), legacy);
    std::atomic<bool> ended{false};
    std::thread ending([&] {
      const QueryBan quiet = QueryBan::about_stream(handle<CUstream>(16));
      ended.store(true);
    });
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(ended.load());
    asked.reset();
    ending.join();
  }
}

TEST(DriverQuery, NoneIsAskedAboutWhatEnds) {
  {
    const QueryBan stream = QueryBan::about_stream(handle<CUstream>(16));
    EXPECT_FALSE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(16)));
    EXPECT_FALSE(DriverQuery(handle<CUcontext>(1), CU_STREAM_LEGACY));
    const QueryBan context = QueryBan::about_context(handle<CUcontext>(2));
    EXPECT_FALSE(DriverQuery(handle<CUcontext>(2), handle<CUstream>(48)));
  }
  EXPECT_TRUE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(16)));
  EXPECT_TRUE(DriverQuery(handle<CUcontext>(2), handle<CUstream>(48)));
}

// Prevents: a thread that is blocked in cuCtxDestroy keeps every job of the process open.
TEST(DriverQuery, OthersAreAskedWhileSomethingEnds) {
  const QueryBan stream = QueryBan::about_stream(handle<CUstream>(16));
  const QueryBan context = QueryBan::about_context(handle<CUcontext>(2));
  EXPECT_TRUE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(32)));
}

TEST(DriverQuery, WhoCannotSayWhichContextEndsBansAll) {
  const QueryBan context = QueryBan::about_context(nullptr);
  EXPECT_FALSE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(32)));
}

// Prevents: the ban of the 33rd thread that ends something at the same time is none.
TEST(DriverQuery, AnyNumberOfThreadsMayBan) {
  std::vector<std::unique_ptr<QueryBan>> held;
  for (std::uintptr_t i = 0; i < 40; ++i) {
    held.emplace_back(new QueryBan(QueryBan::about_stream(handle<CUstream>(16 + 16 * i))));
  }
  for (std::uintptr_t i = 0; i < 40; ++i) {
    EXPECT_FALSE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(16 + 16 * i)));
  }
  held.clear();
  EXPECT_TRUE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(16)));
}

// Prevents: a thread is cancelled inside cuCtxDestroy, and jobs in that context never end.
TEST(DriverQuery, TheBanOfAThreadThatHasEndedIsVoid) {
  std::atomic<pid_t> thread{0};
  std::thread cancelled([&] {
    static_cast<void>(CancellableBan::about_context(handle<CUcontext>(1)));
    thread.store(gettid());
  });
  cancelled.join();
  while (!ThreadMarks::is_gone(thread.load())) std::this_thread::yield();
  EXPECT_TRUE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(16)));
}

// The last test, because it bans queries for good. Prevents: the driver is torn down during an
// early switch or a query.
TEST(DriverQuery, AtExitOneIsWaitedForAndNoneIsAskedAfter) {
  std::optional<DriverQuery> asked;
  asked.emplace(handle<CUcontext>(1), handle<CUstream>(16));
  std::atomic<bool> over{false};
  std::thread leaving([&] {
    const auto begin = std::chrono::steady_clock::now();
    forbid_queries_for_good();
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(over.load() || took >= 90ms) << "it waits, for 100 ms at most";
  });
  std::this_thread::sleep_for(20ms);
  over.store(true);
  asked.reset();
  leaving.join();
  EXPECT_FALSE(DriverQuery(handle<CUcontext>(1), handle<CUstream>(16)));
  // Several tries: a busy machine may stop a thread for as long as the wait that must not be here.
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    forbid_queries_for_good();
    shortest = std::min(shortest, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(shortest, 90ms);
}

}  // namespace
}  // namespace sluice::intercept
