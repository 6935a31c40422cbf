// The measuring rule. Prevents: labels from single runs, from a disturbed GPU, or without a word
// about their spread.
#include <gmock/gmock.h>

#include "profiler/measure/rule.hpp"

namespace sluice::profiler {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::SizeIs;

/// Runs of 0.1 ms. `factor(call)` stretches one call; `others(call)`: another client works.
struct MadeUpGpu {
  std::function<double(int)> factor = [](int) { return 1.0; };
  std::function<bool(int)> others = [](int) { return false; };
  double once = 1e-4;
  std::vector<std::size_t> asked{};

  [[nodiscard]] MeasuredTimes measure(std::size_t most_runs = 256) {
    int call = 0;
    return measure_by_rule(
        [&](std::size_t runs) {
          asked.push_back(runs);
          const double stretched = once * static_cast<double>(runs) * factor(call);
          return TimedRuns{stretched, others(call++)};
        },
        most_runs);
  }
};

TEST(MeasuringRule, WarmsUpThenRepeatsFor2Ms) {
  MadeUpGpu gpu;
  const MeasuredTimes times = gpu.measure();
  EXPECT_THAT(gpu.asked, testing::ElementsAre(1, 1, 20, 20, 20, 20, 20));
  EXPECT_THAT(times.seconds, SizeIs(5));
  EXPECT_THAT(times.seconds, Each(DoubleNear(1e-4, 1e-12)));
  EXPECT_DOUBLE_EQ(times.spread, 1);
  EXPECT_FALSE(times.disturbed());
}

TEST(MeasuringRule, LongRunsAreRunOnceAndShortOnesNoMoreThanAllowed) {
  MadeUpGpu slow{.once = 0.5};
  (void)slow.measure();
  EXPECT_THAT(slow.asked, Each(1U));
  MadeUpGpu fast{.once = 1e-6};
  (void)fast.measure(256);
  EXPECT_EQ(fast.asked.back(), 256U);
}

TEST(MeasuringRule, ASpreadAboveTheLimitIsMeasuredAgain) {
  MadeUpGpu gpu{.factor = [](int call) { return call == 3 ? 1.2 : 1; }};
  const MeasuredTimes times = gpu.measure();
  EXPECT_THAT(gpu.asked, SizeIs(2 + 2 * 5));
  EXPECT_FALSE(times.disturbed());
  EXPECT_DOUBLE_EQ(times.spread, 1);
}

TEST(MeasuringRule, AfterThreeMoreAttemptsTheBestCountsAsDisturbed) {
  // Attempts of spread 1.4, 1.3, 1.2 and 1.5: all too large.
  const std::vector<double> peaks{1.4, 1.3, 1.2, 1.5};
  MadeUpGpu gpu{.factor = [&](int call) {
    return call >= 2 && (call - 2) % 5 == 0 ? peaks[static_cast<std::size_t>(call - 2) / 5] : 1;
  }};
  const MeasuredTimes times = gpu.measure();
  EXPECT_THAT(gpu.asked, SizeIs(2 + 4 * 5));
  EXPECT_TRUE(times.disturbed());
  EXPECT_NEAR(times.spread, 1.2, 1e-9);
}

TEST(MeasuringRule, ARepeatWithAnotherClientIsRepeated) {
  // Disturbed and much longer: only the two calls that are thrown away show it.
  const auto disturbed = [](int call) { return call == 4 || call == 5; };
  MadeUpGpu gpu{.factor = [&](int call) { return disturbed(call) ? 9 : 1; }, .others = disturbed};
  const MeasuredTimes times = gpu.measure();
  EXPECT_THAT(gpu.asked, SizeIs(2 + 5 + 2));
  EXPECT_FALSE(times.disturbed());
  EXPECT_THAT(times.seconds, Each(DoubleNear(1e-4, 1e-12)));
}

TEST(MeasuringRule, AnotherClientThatNeverStopsMakesTheLabelDisturbed) {
  MadeUpGpu gpu{.others = [](int) { return true; }};
  EXPECT_TRUE(gpu.measure().disturbed()) << "though the spread is 1";
}

}  // namespace
}  // namespace sluice::profiler
