// Which job of the pool runs when. The tests decide when jobs end, so no test depends on time.
#include "server/api/codec_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <random>

#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

/// Keeps threads of a pool until it is destroyed.
class Busy {
 public:
  Busy(CodecPool& pool, int threads, std::size_t work) {
    for (int i = 0; i < threads; ++i) {
      pool.post(work, [this, freed = freed_] {
        ++running_;
        freed.wait();
        ++ended_;
      });
    }
    posted_ = threads;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    free_.set_value();
    EXPECT_TRUE(test::eventually([&] { return ended_ == posted_; }));
  }
  [[nodiscard]] bool run(int threads) const {
    return test::eventually([&] { return running_ == threads; });
  }
  [[nodiscard]] int running() const { return running_; }

 private:
  std::promise<void> free_;
  std::shared_future<void> freed_ = free_.get_future().share();
  std::atomic<int> running_ = 0;
  std::atomic<int> ended_ = 0;
  int posted_ = 0;
};

// Prevents: a request of 100 KB waits for those of 30 MB that came before it.
TEST(CodecPool, ASmallJobOvertakesLargeOnes) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    CodecPool pool(1);
    std::vector<std::size_t> sizes;
    {
      const Busy busy(pool, 1, 0);
      ASSERT_TRUE(busy.run(1));
      for (int i = 0; i < 20; ++i) {
        const std::size_t size = random() % CodecPool::kHuge;
        pool.post(size, [&sizes, size] { sizes.push_back(size); });
      }
    }
    pool.end();
    EXPECT_EQ(sizes.size(), 20U);
    EXPECT_TRUE(std::ranges::is_sorted(sizes));
  }
}

// Prevents: a large request waits as long as small ones come.
TEST(CodecPool, ALargeJobWaitsForNoMoreThanItsOwnSize) {
  constexpr std::size_t kSmall = 10;
  constexpr int kOvertake = 50;
  CodecPool pool(1);
  int before = 0;
  bool ran = false;
  std::atomic<bool> done = false;
  // Each small job brings the next one, so there always is one.
  std::function<void()> small = [&] {
    done = ran;
    if (ran) return;
    ++before;
    pool.post(kSmall, small);
  };
  {
    const Busy busy(pool, 1, 0);
    ASSERT_TRUE(busy.run(1));
    pool.post(kOvertake * kSmall, [&] { ran = true; });
    pool.post(kSmall, small);
  }
  EXPECT_TRUE(test::eventually([&] { return done.load(); }));
  pool.end();
  EXPECT_GE(before, kOvertake - 2);
  EXPECT_LE(before, kOvertake);
}

// Prevents: as many requests of 30 MB as there are threads keep one of 100 KB waiting for seconds.
TEST(CodecPool, HugeJobsLeaveAThread) {
  for (const int threads : {1, 2, 5}) {
    CodecPool pool(static_cast<unsigned>(threads));
    const int most = std::max(threads - 1, 1);
    const Busy huge(pool, 10, CodecPool::kHuge);
    ASSERT_TRUE(huge.run(most)) << threads;
    if (threads == 1) continue;
    for (int i = 0; i < 5; ++i) {
      std::atomic<bool> ran = false;
      pool.post(CodecPool::kHuge - 1, [&] { ran = true; });
      ASSERT_TRUE(test::eventually([&] { return ran.load(); })) << threads;
    }
    EXPECT_EQ(huge.running(), most);
  }
}

// Prevents: a request without an answer, because the server ends.
TEST(CodecPool, TheEndRunsWhatWasPosted) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ran = 0;
    {
      CodecPool pool(3);
      for (int i = 0; i < 20; ++i) pool.post(i % 2 == 0 ? CodecPool::kHuge : 1, [&] { ++ran; });
    }
    ASSERT_EQ(ran, 20);
  }
}

// Prevents: a job keeps the body of its request when it has run.
TEST(CodecPool, WhatAJobHoldsIsFreedWhenItHasRun) {
  CodecPool pool(1);
  const auto held = std::make_shared<int>(1);
  pool.post(1, [held] {});
  EXPECT_TRUE(test::eventually([&] { return held.use_count() == 1; }));
}

}  // namespace
}  // namespace sluice::server::api
