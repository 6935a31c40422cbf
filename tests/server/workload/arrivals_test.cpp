#include "server/workload/arrivals.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/statistics.hpp"

namespace sluice::server::workload {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

std::vector<std::uint64_t> first(const Law& law, std::size_t count, std::uint32_t index = 0,
                                 std::uint32_t seed = 0) {
  const DueTimes next = due_times(law, index, seed);
  std::vector<std::uint64_t> due;
  while (due.size() < count) {
    const auto time = next();
    if (!time) break;
    due.push_back(*time);
  }
  return due;
}

std::vector<double> gaps_ms(const std::vector<std::uint64_t>& due) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < due.size(); ++i) {
    gaps.push_back(static_cast<double>(due[i] - due[i - 1]) / kMs);
  }
  return gaps;
}

double variance(const std::vector<double>& sample) {
  const double mean = base::mean(sample);
  double squares = 0;
  for (const double each : sample) squares += (each - mean) * (each - mean);
  return squares / static_cast<double>(sample.size());
}

std::size_t between(const std::vector<std::uint64_t>& due, double from_s, double to_s) {
  return static_cast<std::size_t>(std::count_if(due.begin(), due.end(), [&](std::uint64_t ns) {
    const double s = static_cast<double>(ns) / 1e9;
    return s >= from_s && s < to_s;
  }));
}

TEST(Arrivals, NearPeriodicGapsAreWholeMsWithTheVarianceOfPoisson) {
  const auto due = first(NearPeriodic{105}, 20'000);
  for (const std::uint64_t ns : due) ASSERT_EQ(ns % kMs, 0U);
  EXPECT_NEAR(base::mean(gaps_ms(due)), 105, 0.5);
  // Not 105 squared, as that of a Poisson process.
  EXPECT_NEAR(variance(gaps_ms(due)), 105, 4);
}

TEST(Arrivals, NearPeriodicTimesAreThoseOfThePublishedClient) {
  // Its generator for model i is seeded with i * 100 + 100.
  for (std::uint32_t model = 0; model < 3; ++model) {
    std::mt19937 random(model * 100 + 100);
    std::poisson_distribution<std::uint64_t> gap(150);
    std::uint64_t at_ms = 0;
    for (const std::uint64_t ns : first(NearPeriodic{150}, 100, model)) {
      at_ms += gap(random);
      ASSERT_EQ(ns, at_ms * kMs);
    }
  }
}

TEST(Arrivals, PoissonProcessHasExponentialGaps) {
  const auto gaps = gaps_ms(first(Poisson{20}, 50'000));
  EXPECT_NEAR(base::mean(gaps), 20, 0.4);
  EXPECT_NEAR(variance(gaps), 400, 20);
  // Memoryless: a gap longer than its mean has the probability 1/e.
  const auto longer = std::count_if(gaps.begin(), gaps.end(), [](double gap) { return gap > 20; });
  EXPECT_NEAR(static_cast<double>(longer) / static_cast<double>(gaps.size()), 0.368, 0.01);
}

TEST(Arrivals, TickedPoissonDrawsANumberForEach10Ms) {
  const auto due = first(TickedPoisson{{{}, {300}}}, 60'000);
  std::vector<double> counts(due.back() / (10 * kMs));
  for (const std::uint64_t ns : due) {
    ASSERT_EQ(ns % (10 * kMs), 0U);
    if (ns / (10 * kMs) < counts.size()) ++counts[ns / (10 * kMs)];
  }
  EXPECT_NEAR(base::mean(counts), 3, 0.05);
  EXPECT_NEAR(variance(counts), 3, 0.15);
}

TEST(Arrivals, RateChangesAtItsTimes) {
  const auto due = first(TickedPoisson{{{10, 20}, {50, 500, 0}}}, 1'000'000);
  EXPECT_NEAR(static_cast<double>(between(due, 0, 10)), 500, 100);
  EXPECT_NEAR(static_cast<double>(between(due, 10, 20)), 5000, 300);
  EXPECT_EQ(between(due, 20, 1e6), 0U) << "a rate of 0 after the last change must end the arrivals";
}

TEST(Arrivals, APauseIsNotTheEnd) {
  const auto due = first(TickedPoisson{{{10, 20}, {50, 0, 50}}}, 900);
  EXPECT_EQ(between(due, 10, 20), 0U);
  EXPECT_GT(between(due, 20, 1e6), 300U);
}

TEST(Arrivals, OneSeedGivesTheSameTimesAndAnotherSeedOthers) {
  for (const Law& law :
       {Law{NearPeriodic{105}}, Law{Poisson{20}}, Law{TickedPoisson{{{}, {50}}}}}) {
    EXPECT_EQ(first(law, 100, 1, 7), first(law, 100, 1, 7)) << describe(law);
    EXPECT_NE(first(law, 100, 1, 7), first(law, 100, 1, 8)) << describe(law);
    // In step, all models would send at once.
    EXPECT_NE(first(law, 100, 1, 7), first(law, 100, 2, 7)) << describe(law);
  }
}

TEST(Arrivals, TimesNeverGoBack) {
  for (const Law& law :
       {Law{NearPeriodic{0.5}}, Law{Poisson{0.01}}, Law{TickedPoisson{{{}, {5e4}}}}}) {
    const auto due = first(law, 10'000);
    EXPECT_TRUE(std::is_sorted(due.begin(), due.end())) << describe(law);
  }
}

TEST(Arrivals, ReplayEndsWithItsFile) {
  EXPECT_EQ(first(Replay{{5, 5, 9}}, 10), (std::vector<std::uint64_t>{5, 5, 9}));
}

TEST(Arrivals, AStepBeginsAtItsTime) {
  const Steps<int> steps{{1, 2}, {10, 20, 30}};
  EXPECT_EQ(steps.at(0), 10);
  EXPECT_EQ(steps.at(0.999), 10);
  EXPECT_EQ(steps.at(1), 20);
  EXPECT_EQ(steps.at(5), 30);
}

}  // namespace
}  // namespace sluice::server::workload
