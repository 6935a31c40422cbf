// Jobs that nobody announces and that come regularly: this process closes the gates before them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/clock.hpp"
#include "shm/policy.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/above.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A fiftieth of it may be lost to a busy machine, and still the jobs are regular.
constexpr auto kPeriod = 60ms;
constexpr int kPatience = 150;

class Predicted : public Above {
 protected:
  void attach_above(const char* policy_below = "device:200us") {
    attach("gate", 5);
    low_.emplace(session_, 0);
    below().policy.store(shm::parse_policy(policy_below)->pack());
    due_ = Clock::now();
  }

  /// Nothing is to be paid where nothing can be won: no thread that wakes, and no closed gate.
  void expect_nothing_done() {
    EXPECT_FALSE(some_job_is_predicted(explicit_job, 25));
    EXPECT_FALSE(notice_thread());
    EXPECT_EQ(slot().predictions.load(), 0U);
  }
  static void explicit_job() { sluice_job_end(sluice_job_begin(0)); }
  static void transparent_job() {
    launch();
    ::cuStreamSynchronize(nullptr);
  }

  /// Jobs at their times, until one finds the gate closed; false if none of so many does.
  bool some_job_is_predicted(void (*job)(), int patience = kPatience) {
    for (int i = 0; i < patience; ++i) {
      std::this_thread::sleep_until(due_ += kPeriod);
      const bool found_closed = closed();
      job();
      if (found_closed) return true;
      EXPECT_FALSE(closed()) << "left closed by a job";
    }
    return false;
  }

  Clock::time_point due_;
};

TEST_F(Predicted, ExplicitJobsFindTheGateClosed) {
  attach_above();
  EXPECT_TRUE(some_job_is_predicted(explicit_job));
  EXPECT_FALSE(closed()) << "open after the job";
  EXPECT_GE(slot().predictions.load(), 1U);
  EXPECT_GE(slot().prediction_hits.load(), 1U);
  EXPECT_GT(slot().prediction_cost_ns.load(), 0U);
  EXPECT_EQ(below().announced.load(), 1U) << "long launches must look at the room";
}

TEST_F(Predicted, TransparentJobsFindTheGateClosed) {
  attach_above();
  EXPECT_TRUE(some_job_is_predicted(transparent_job));
  EXPECT_FALSE(closed()) << "open after the job";
}

// If this process is stopped before the job begins, those below must not wait for it. Seen to fail
// where only announced jobs said until when they may come.
TEST_F(Predicted, ThoseBelowKnowHowLongAJobMayKeepThemWaiting) {
  attach_above();
  static const shm::Word* until = nullptr;
  static std::uint64_t said = 0;
  until = &slot().early_hold_until_ns;
  ASSERT_TRUE(some_job_is_predicted([] {
    said = until->load();
    explicit_job();
  }));
  EXPECT_NE(said, 0U);
  EXPECT_EQ(until->load(), 0U) << "it has begun";
}

// Seen to fail without end_slack() in get_ready().
TEST_F(Predicted, BetweenJobsLongLaunchesAreFree) {
  attach_above();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(some_job_is_predicted(explicit_job));
    std::this_thread::sleep_for(kPeriod / 3);
    if (below().slack_ns.load() == shm::kUnlimitedSlack) return;  // else this machine was busy
  }
  FAIL() << "told of a job all the time";
}

// Seen to fail without release_below() in look_ahead(): closed until max_hold.
TEST_F(Predicted, AJobThatDoesNotComeHoldsNobody) {
  attach_above();
  ASSERT_TRUE(some_job_is_predicted(explicit_job));
  std::this_thread::sleep_for(3 * kPeriod);
  for (auto until = Clock::now() + 5 * kPeriod; Clock::now() < until;) {
    ASSERT_FALSE(closed());
    ASSERT_EQ(below().slack_ns.load(), shm::kUnlimitedSlack);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(slot().job.load() % 2, 0U) << "shown as active";
}

// Where nobody was below, jobs that were expected are long over when somebody comes. Seen to fail
// where lapsed() took but one of them for over: gates closed for the other.
TEST_F(Predicted, WhatIsOverHoldsNobodyWhoComesLater) {
  attach_above();
  ASSERT_TRUE(some_job_is_predicted(explicit_job));
  low_.reset();
  std::this_thread::sleep_for(3 * kPeriod);
  const std::uint64_t before = slot().job.load();
  low_.emplace(session_, 0);
  below().policy.store(shm::parse_policy("device:200us")->pack());
  std::this_thread::sleep_for(1200ms);  // the notice thread looks once a second
  EXPECT_EQ(slot().job.load(), before);
}

// The time in front of it is no part of a job. Seen to fail where job_since_ns is its begin.
TEST_F(Predicted, AJobIsAsLongAsItTook) {
  attach_above("gate");  // the gates close 1.2 ms before a job
  below().policy.store(shm::parse_policy("device:4")->pack());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(some_job_is_predicted(explicit_job));
    const std::uint64_t took = slot().job_times.recent().ns.back();
    if (took < 1'000'000) return;  // else this machine was busy
  }
  FAIL() << "every job took longer than the notice";
}

// Seen to fail where announce_job() does not set g_announced_jobs.
TEST_F(Predicted, WhoAnnouncesIsNotPredicted) {
  attach_above();
  ASSERT_TRUE(some_job_is_predicted(explicit_job));
  sluice_job_cancel(sluice_job_announce(base::monotonic_ns() + 10'000'000'000));
  EXPECT_FALSE(some_job_is_predicted(explicit_job, 20));
}

TEST_F(Predicted, NotWhereItIsSwitchedOff) {
  setenv("SLUICE_PREDICT", "0", 1);
  attach_above();
  expect_nothing_done();
}

// Seen to fail, as the next two, where expect_job() asks for nothing before it starts the thread.
// The published policies stay as they were published.
TEST_F(Predicted, OnlyForPolicyDeviceBelow) {
  attach_above("event:2");
  expect_nothing_done();
}

// Gates would be closed for more than a tenth of the time: 1.2 ms before a job, by device:4.
TEST_F(Predicted, OnlyWhereThePeriodIsLongEnough) {
  attach_above("device:4");
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_until(due_ += 8ms);
    explicit_job();
  }
  EXPECT_FALSE(notice_thread());
  EXPECT_EQ(slot().predictions.load(), 0U);
}

// Jobs are regular long before somebody comes whom they are predicted for. Seen to fail where the
// thread was started, or not, only when the jobs became regular.
TEST_F(Predicted, OnlyWhereSomebodyIsBelow) {
  attach_above();
  low_.reset();
  due_ = Clock::now();
  for (int i = 0; i < 25; ++i) {
    std::this_thread::sleep_until(due_ += kPeriod);
    ASSERT_EQ(slot().job.load() % 2, 0U);
    explicit_job();
  }
  EXPECT_FALSE(notice_thread());
  EXPECT_EQ(slot().predictions.load(), 0U);
  low_.emplace(session_, 0);
  below().policy.store(shm::parse_policy("device:200us")->pack());
  due_ = Clock::now();
  EXPECT_TRUE(some_job_is_predicted(explicit_job));
}

}  // namespace
}  // namespace sluice::intercept::test
