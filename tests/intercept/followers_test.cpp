// Requests that are several jobs, in virtual time: what is told after each job of the next one.
#include "intercept/jobs/followers.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1'000'000;

class Requests : public testing::Test {
 protected:
  /// Jobs of these kinds, `job_us` each, `gap_us` apart. Returns what was told after each.
  std::vector<std::uint64_t> request(const std::vector<std::uint64_t>& kinds,
                                     std::uint64_t job_us = 800, std::uint64_t gap_us = 100) {
    std::vector<std::uint64_t> told;
    for (const std::uint64_t kind : kinds) {
      followers_.began(kind, now_);
      now_ += job_us * kUs;
      followers_.ended(now_);
      told.push_back(followers_.next(now_).value_or(0));
      now_ += gap_us * kUs;
    }
    return told;
  }
  void pause(std::uint64_t ms = 50) { now_ += ms * kMs; }
  void requests(const std::vector<std::uint64_t>& kinds, int times) {
    for (int i = 0; i < times; ++i) {
      request(kinds);
      pause();
    }
  }

  Followers followers_;
  std::uint64_t now_ = 5 * kMs;
};

using Told = std::vector<std::uint64_t>;

TEST_F(Requests, EachJobTellsTheNextOneAndTheLastNone) {
  requests({1, 2, 3}, 3);
  EXPECT_EQ(request({1, 2, 3}), (Told{0, 0, 0})) << "three are too few";
  pause();
  EXPECT_EQ(request({1, 2, 3}), (Told{2, 3, 0}));
  pause();
  EXPECT_EQ(request({1, 2, 3}, 800, 499), (Told{2, 3, 0}));
  EXPECT_EQ(followers_.soon_ns(), 500 * kUs);
}

TEST_F(Requests, ApartTheyAreNone) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(request({1, 2, 3}, 800, 500), (Told{0, 0, 0}));
}

TEST_F(Requests, WhatComesLaterIsForgottenSoon) {
  requests({1, 2}, 20);
  int told = 0;
  for (int i = 0; i < 10; ++i) {
    told += request({1})[0] != 0 ? 1 : 0;
    pause();
  }
  EXPECT_EQ(told, 3) << "from 8, by 2, to less than 4";
}

// A request of many jobs that begin alike is not known to be over after the last one.
TEST_F(Requests, JobsThatBeginAlikeAreFollowedByEachOther) {
  requests({1, 1, 1, 1, 1, 1}, 4);
  EXPECT_EQ(request({1, 1, 1, 1, 1, 1}), (Told{1, 1, 1, 1, 1, 1}));
  pause();
  requests({7, 7}, 20);
  EXPECT_EQ(request({7, 7}), (Told{0, 0})) << "one of two is not enough";
}

// Prevents: a program that is back to back leaves no gap to those below.
TEST_F(Requests, BackToBackNothingIsTold) {
  int told = 0;
  for (int i = 0; i < 1000; ++i) told += request({1, 2})[0] != 0 ? 1 : 0;
  EXPECT_EQ(told, 0) << "it was never apart";
  pause();
  request({1, 2});
  EXPECT_EQ(request({1}), (Told{0})) << "the chain before was long";
  pause();
  request({1});
  pause();
  requests({1, 2}, 4);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t began = i * 1800 * kUs;
    const Told now = request({1, 2});
    if (began > Followers::kLongestChainNs) {
      EXPECT_EQ(now, (Told{0, 0}));
    }
    told += now[0] != 0 ? 1 : 0;
  }
  EXPECT_NEAR(told, 100 / 1.8, 2) << "until the chain is long";
}

TEST_F(Requests, ManyKindsReplaceEachOther) {
  requests({1, 2}, 10);
  for (std::uint64_t kind = 0; kind < 10'000; ++kind) requests({100 + kind}, 1);
  EXPECT_EQ(request({1, 2}), (Told{0, 0})) << "forgotten";
  pause();
  requests({1, 2}, 10);
  for (std::uint64_t kind = 0; kind < 10'000; ++kind) {
    requests({100'000 + kind}, 1);
    if (kind % 30 == 0) {
      EXPECT_EQ(request({1, 2})[0], 2U) << "used often";
    }
    pause();
  }
}

TEST_F(Requests, TimesAreOfTheGpu) {
  Followers slow(10);
  std::uint64_t now = 1;
  for (int i = 0; i < 10; ++i) {
    for (const std::uint64_t kind : {1, 2}) {
      slow.began(kind, now);
      slow.ended(now += 30 * kMs);
      EXPECT_EQ(slow.next(now).value_or(0), kind == 1 && i >= 4 ? 2U : 0U);
      now += 4 * kMs;
    }
    now += 100 * kMs;
  }
}

// Prevents: a job whose end the poll has found too early follows itself.
TEST_F(Requests, AJobThatGoesOnIsNoOther) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(request({1}), (Told{0}));
    followers_.goes_on();
    EXPECT_EQ(request({0}), (Told{0}));
    pause();
  }
  requests({1, 2}, 5);
  followers_.began(1, now_);
  followers_.ended(now_ += kMs);
  followers_.goes_on();
  followers_.began(0, now_ += 300 * kUs);
  followers_.ended(now_ += kMs);
  EXPECT_EQ(followers_.next(now_), 2U);
}

// A clock that goes back is a gap.
TEST_F(Requests, BearsAClockThatJumps) {
  requests({1, 2}, 10);
  for (const std::uint64_t to :
       {std::uint64_t{0}, ~std::uint64_t{0} - 10 * kMs, std::uint64_t{7}}) {
    now_ = to;
    request({1, 2});
  }
  pause();
  requests({1, 2}, 10);
  EXPECT_EQ(request({1, 2})[0], 2U);
}

}  // namespace
}  // namespace sluice::intercept::test
