#include "runner/arrivals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sluice::runner {
namespace {

std::vector<std::uint64_t> first(Arrivals arrivals, int count) {
  std::vector<std::uint64_t> due;
  for (int i = 0; i < count; ++i) due.push_back(arrivals.next_ns(0));
  return due;
}

TEST(Arrivals, ClosedLoopSleepsAfterEachJobButNotBeforeTheFirst) {
  Arrivals arrivals({}, 0.5);
  EXPECT_FALSE(arrivals.open_loop());
  EXPECT_EQ(arrivals.next_ns(1000), 1000U);
  EXPECT_EQ(arrivals.next_ns(2000), 500'002'000U);
}

TEST(Arrivals, PeriodicScheduleDoesNotDependOnWhenJobsEnd) {
  // If it did, an overloaded critical model would look as fast as an idle one.
  Arrivals arrivals({.kind = Arrival::Kind::kPeriodic, .period_ms = 6}, 0);
  EXPECT_TRUE(arrivals.open_loop());
  EXPECT_EQ(arrivals.next_ns(0), 0U);
  EXPECT_EQ(arrivals.next_ns(99'000'000), 6'000'000U);
  EXPECT_EQ(arrivals.next_ns(99'000'000), 12'000'000U);
}

TEST(Arrivals, JitterUsesAllOfItsPartOfThePeriodAndNoMore) {
  const auto due =
      first({{.kind = Arrival::Kind::kPeriodic, .period_ms = 10, .jitter = 0.3}, 0}, 1000);
  std::uint64_t least = due[0];
  std::uint64_t most = 0;
  for (std::uint64_t i = 0; i < due.size(); ++i) {
    ASSERT_GE(due[i], i * 10'000'000);
    const std::uint64_t shift = due[i] - i * 10'000'000;
    least = std::min(least, shift);
    most = std::max(most, shift);
  }
  EXPECT_LT(least, 100'000U);
  EXPECT_GT(most, 2'900'000U);
  EXPECT_LE(most, 3'000'000U);
}

TEST(Arrivals, PoissonKeepsItsRateAndRepeatsWithItsSeed) {
  const Arrival arrival{.kind = Arrival::Kind::kPoisson, .rate_per_s = 100, .seed = 5};
  const auto due = first({arrival, 0}, 10'000);
  EXPECT_NEAR(static_cast<double>(due.back()), 100e9, 5e9);  // five standard deviations
  EXPECT_EQ(due, first({arrival, 0}, 10'000));
  Arrival other = arrival;
  other.seed = 6;
  EXPECT_NE(due, first({other, 0}, 10'000));
}

}  // namespace
}  // namespace sluice::runner
