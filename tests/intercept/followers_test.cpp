// Requests that are several jobs, in virtual time: what is told after each job of the next one.
#include "intercept/jobs/followers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1'000'000;

/// The kind of the next job, for which the gates stay closed; 0: they open.
std::uint64_t told_by(Followers& followers) {
  std::uint64_t told = 0;
  const bool stay = followers.stay_closed([&told](std::uint64_t kind) {
    told = kind;
    return true;
  });
  EXPECT_EQ(stay, told != 0);
  return told;
}

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
      told.push_back(told_by(followers_));
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
  const auto back_to_back = [&] {
    for (const std::uint64_t each : request({1, 2})) told += each != 0 ? 1 : 0;
  };
  for (int i = 0; i < 1000; ++i) back_to_back();
  EXPECT_EQ(told, 0) << "it was never apart";
  for (int i = 0; i < 10; ++i) {
    for (int k = 0; k < 3; ++k) {
      pause();
      back_to_back();
    }
    pause();
    told = 0;
    for (int k = 0; k < 1000; ++k) back_to_back();
    EXPECT_NEAR(told, Followers::kMostLeftNs / (100 * kUs), 8) << "for the pause";
  }
}

// Prevents: a decode loop whose host is a bit late now and then has no gaps for those below.
TEST_F(Requests, AtLeastHalfOfTheTimeBetweenJobsIsLeft) {
  std::mt19937_64 random(1);
  for (const double median_us : {50.0, 100.0, 200.0, 300.0, 400.0, 1000.0}) {
    for (const double sigma : {0.2, 0.5, 1.0, 2.0}) {
      SCOPED_TRACE(testing::Message() << median_us << " us, sigma " << sigma);
      std::lognormal_distribution<double> gap(std::log(median_us), sigma);
      double gaps = 0;
      double held = -2.0 * Followers::kMostLeftNs / kUs;
      for (int i = 0; i < 5000; ++i) {
        const double us = std::min(gap(random), 1e6);
        gaps += us;
        const bool stays = request({1}, 1000, std::uint64_t(us))[0] != 0;
        held += stays ? std::min(us, double(Followers::kSoonNs) / kUs) : 0;
      }
      EXPECT_LE(held, gaps / 2);
    }
  }
}

// Prevents: gates that open all the same pay for others.
TEST_F(Requests, GatesThatMayNotStayClosedOpen) {
  requests({1, 2}, 10);
  for (int i = 0; i < 300; ++i) {
    followers_.began(1 + i % 2, now_);
    followers_.ended(now_ += kMs);
    EXPECT_FALSE(followers_.stay_closed([](std::uint64_t) { return false; }));
    now_ += 400 * kUs;
  }
  followers_.began(1, now_);
  EXPECT_EQ(told_by(followers_), 2U) << "120 ms of gaps later";
}

// Prevents: requests with short pauses between them are as dear as before.
TEST_F(Requests, APauseOfTheSameTimePaysForTheGapsOfARequest) {
  const std::vector<std::uint64_t> kinds{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  int told = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::uint64_t each : request(kinds)) told += each != 0 ? 1 : 0;
    pause(1);
  }
  EXPECT_GE(told, 94 * 9) << "0.9 ms between the jobs";
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
      EXPECT_EQ(told_by(slow), kind == 1 && i >= 4 ? 2U : 0U);
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
  EXPECT_EQ(told_by(followers_), 2U);
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
