// When jobs are predicted, when not, and when no longer. The tests pass in all times.
#include "intercept/jobs/prediction.hpp"

#include <gtest/gtest.h>

#include <random>

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kLead = 400 * kUs;

/// Acts on predictions as the announcing thread does, without its steps.
class Predictions : public testing::Test {
 protected:
  void wait_until(std::uint64_t until) {
    while (prediction_.expected() && prediction_.affordable(lead_)) {
      prediction_.watch();
      const Prediction::Expected expected = *prediction_.expected();
      const std::uint64_t close = std::max(expected.start_ns - lead_, now_);
      if (until < close) break;
      if (!closed_) prediction_.closed(close);
      closed_ = until < expected.lapse_ns;
      if (closed_) break;
      prediction_.lapsed(expected.lapse_ns);
      now_ = expected.lapse_ns;
    }
    now_ = until;
  }
  /// Returns whether the gates were closed for the job.
  bool job_at(std::uint64_t begin, std::uint64_t takes = 500 * kUs) {
    wait_until(begin);
    const bool was_closed = std::exchange(closed_, false);
    prediction_.began(begin);
    prediction_.ended(begin + takes);
    return was_closed;
  }
  bool job_after(std::uint64_t interval) { return job_at(now_ + interval); }
  void jobs(int count, std::uint64_t period) {
    for (int i = 0; i < count; ++i) job_after(period);
  }
  [[nodiscard]] const Prediction::Tally& tally() const { return prediction_.tally(); }

  Prediction prediction_;
  std::uint64_t lead_ = kLead;
  std::uint64_t now_ = 1'000'000 * kMs;
  bool closed_ = false;
  std::mt19937 random_{1};
};

TEST_F(Predictions, RegularJobsFindTheGatesClosed) {
  jobs(13, 20 * kMs);
  EXPECT_EQ(tally().made, 0U) << "twelve intervals are the least";
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(job_after(20 * kMs));
  EXPECT_EQ(tally().made, 100U);
  EXPECT_EQ(tally().hits, 100U);
  EXPECT_EQ(tally().paid_ns, 100 * kLead);
}

// The gates close before the early ones, not in the middle between early and late.
TEST_F(Predictions, JitterIsAllowedFor) {
  std::uniform_int_distribution<std::uint64_t> jitter(0, 500 * kUs);
  for (int i = 0; i < 1000; ++i) job_after(30 * kMs + jitter(random_));
  EXPECT_GT(tally().made, 950U);
  EXPECT_GT(tally().hits, tally().made * 99 / 100);
  EXPECT_LT(tally().paid_ns / tally().made, kLead + 400 * kUs);
  EXPECT_GT(tally().paid_ns / tally().made, kLead + 100 * kUs);
}

// Seen to fail with the worst in the place of the percentile: one late job of sixteen makes each
// that does not come hold for as long.
TEST_F(Predictions, OneStrayJobOfSixteenMovesNothing) {
  jobs(8, 20 * kMs);
  job_after(20 * kMs + 250 * kUs);
  job_after(20 * kMs - 250 * kUs);
  jobs(10, 20 * kMs);
  ASSERT_TRUE(prediction_.expected());
  EXPECT_EQ(prediction_.expected()->start_ns, now_ + 20 * kMs);
  EXPECT_EQ(prediction_.expected()->lapse_ns, now_ + 20 * kMs + Prediction::kGraceNs);
}

// Long periods may vary more: a fiftieth.
TEST_F(Predictions, JitterBeyondTheToleranceIsNotRegular) {
  std::uniform_int_distribution<std::uint64_t> jitter(0, 4 * kMs);
  for (int i = 0; i < 1000; ++i) job_after(20 * kMs + jitter(random_));
  EXPECT_LT(tally().made, 20U);
  const std::uint64_t made = tally().made;
  for (int i = 0; i < 1000; ++i) job_after(200 * kMs + jitter(random_));
  EXPECT_GT(tally().made, made + 900);
}

TEST_F(Predictions, PoissonArrivalsAreNotPredicted) {
  for (const double mean : {2e6, 5e6, 20e6, 100e6}) {
    SCOPED_TRACE(mean);
    prediction_ = Prediction();
    std::exponential_distribution<double> interval(1 / mean);
    const std::uint64_t from = now_;
    for (int i = 0; i < 20'000; ++i) job_after(static_cast<std::uint64_t>(interval(random_)));
    EXPECT_LT(tally().made, 200U);
    EXPECT_LT(tally().paid_ns, (now_ - from) / 1000);
  }
}

// The intervals are regular, but every other expected job is missing, which only the misses show.
// Seen to fail without the pause in decide(): a third of the predictions missed, indefinitely.
TEST_F(Predictions, WhatMissesTooOftenPausesLongerAndLonger) {
  std::bernoulli_distribution comes(0.55);
  int count = 0;
  while (count < 10'000) {
    int periods = 1;
    while (!comes(random_)) ++periods;
    job_after(static_cast<std::uint64_t>(periods) * 20 * kMs);
    ++count;
  }
  EXPECT_GT(tally().made, 10U);
  EXPECT_LT(tally().made, 500U);
}

// Seen to fail without the reset of next_pause_.
TEST_F(Predictions, WhatPaysAgainIsForgiven) {
  for (int round = 0; round < 8; ++round) {
    jobs(40, 20 * kMs);
    const std::uint64_t made = tally().made;
    jobs(60, 20 * kMs);
    EXPECT_GE(tally().made, made + 55) << round;
    for (int i = 0; i < 5; ++i) job_after(35 * kMs);  // five misses, and irregular besides
  }
}

// Each hit costs nearly a tenth of the period, and each sixth job is skipped.
// Seen to fail without the second half of earns_its_keep().
TEST_F(Predictions, WhatCostsTooMuchStops) {
  lead_ = 900 * kUs;
  for (int i = 0; i < 2'000; ++i) {
    jobs(4, 10 * kMs);
    job_after(20 * kMs);
  }
  EXPECT_GT(tally().made, 10U);
  EXPECT_LT(tally().made, 500U);
}

TEST_F(Predictions, WhatCannotPayIsNotBegun) {
  jobs(100, 3 * kMs);
  EXPECT_TRUE(prediction_.expected());
  EXPECT_FALSE(prediction_.affordable(lead_));
  EXPECT_EQ(tally().made, 0U);
}

// Seen to fail where intervals of two periods count as irregular, and where nothing is expected
// after a lapse.
TEST_F(Predictions, ASkippedJobIsOneMiss) {
  jobs(40, 20 * kMs);
  const std::uint64_t made = tally().made;
  EXPECT_TRUE(job_after(40 * kMs));
  EXPECT_EQ(tally().made, made + 2);
  EXPECT_EQ(tally().hits, made + 1);
  for (int i = 0; i < 5; ++i) {
    job_after(40 * kMs);
    jobs(4, 20 * kMs);
  }
  EXPECT_TRUE(job_after(20 * kMs));
}

// A client that stopped holds nobody. Seen to fail without kMostAhead.
TEST_F(Predictions, WithoutJobsNothingIsExpected) {
  jobs(40, 20 * kMs);
  const std::uint64_t paid = tally().paid_ns;
  wait_until(now_ + 10'000 * kMs);
  EXPECT_FALSE(closed_);
  EXPECT_FALSE(prediction_.expected());
  EXPECT_LE(tally().paid_ns, paid + 2 * (kLead + Prediction::kGraceNs));
  job_after(20 * kMs);
  EXPECT_TRUE(job_after(20 * kMs)) << "and when it goes on, so does this";
}

TEST_F(Predictions, AnotherPeriodIsLearned) {
  for (const std::uint64_t period : {50 * kMs, 100 * kMs, 33 * kMs, 34 * kMs, 400 * kMs}) {
    SCOPED_TRACE(period);
    jobs(60, period);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(job_after(period));
  }
}

TEST_F(Predictions, AFewStrayJobsAreAllowed) {
  for (int i = 0; i < 50; ++i) {
    jobs(15, 20 * kMs);
    job_after(7 * kMs);
    job_after(13 * kMs);
  }
  EXPECT_GT(tally().made, 600U);
  EXPECT_GT(tally().hits, tally().made * 8 / 10);
}

// A copy to the GPU that is waited for, and then the launches: one job.
// Seen to fail without the comparison with last_end_ns_.
TEST_F(Predictions, PiecesOfAJobAreOne) {
  for (int i = 0; i < 40; ++i) {
    job_after(20 * kMs);
    prediction_.began(now_ + 600 * kUs);
    prediction_.ended(now_ + 3 * kMs);
  }
  EXPECT_GT(tally().made, 20U);
  EXPECT_EQ(tally().hits, tally().made);
}

TEST_F(Predictions, LongPeriodsAreNotPredicted) {
  jobs(100, 1900 * kMs);
  EXPECT_TRUE(prediction_.expected());
  prediction_ = Prediction();
  jobs(100, 2100 * kMs);
  EXPECT_FALSE(prediction_.expected());
}

// While a job runs the gates are closed anyway.
TEST_F(Predictions, AJobThatTakesLongerThanThePeriodIsNoMiss) {
  jobs(20, 20 * kMs);
  const Prediction::Tally before = tally();
  prediction_.watch();
  prediction_.excuse();
  prediction_.lapsed(prediction_.expected()->lapse_ns);
  EXPECT_EQ(tally().made, before.made);
}

}  // namespace
}  // namespace sluice::intercept
