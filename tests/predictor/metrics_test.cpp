// A metric that flatters a model hides that a simpler one is better. All values are by hand.
#include "predictor/math/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::predictor {
namespace {

/// Six programs of two tasks, and one program alone in a third.
struct Six {
  Six() {
    data.devices = {"H200"};
    data.tasks = {{.id = "a"}, {.id = "b"}, {.id = "c"}};
    const std::vector<std::size_t> tasks{0, 0, 0, 1, 1, 1, 2};
    const std::vector<double> seconds{1, 2, 4, 10, 20, 40, 5};
    for (std::size_t p = 0; p < tasks.size(); ++p) {
      data.programs.push_back({.id = std::to_string(p), .task = tasks[p], .index = 0});
      labels.push_back({{p, 0}, seconds[p]});
    }
  }
  Dataset data;
  std::vector<Label> labels;
};

TEST(Metrics, AgreeWithTheHand) {
  const Six six;
  // Off by 4 %, 8 %, 50 %; 15 %, 25 %, 0; 0. Task a is in order; task b begins with its second.
  const std::vector<double> predicted{1.04, 2.16, 6, 11.5, 11, 40, 5};
  const Metrics m = measure(six.data, six.labels, predicted);
  EXPECT_NEAR(m.median, 0.08, 1e-9);
  EXPECT_NEAR(m.mape, (0.04 + 0.08 + 0.5 + 0.15 + 0.45) / 7, 1e-9);
  const double squared = 0.04 * 0.04 + 0.16 * 0.16 + 4 + 1.5 * 1.5 + 81;
  EXPECT_NEAR(m.rmse, std::sqrt(squared / 7), 1e-9);
  // The mean is 82 / 7.
  const double spread = 1 + 4 + 16 + 100 + 400 + 1600 + 25 - 82.0 * 82 / 7;
  EXPECT_NEAR(m.r2, 1 - squared / spread, 1e-9);
  EXPECT_NEAR(m.pairs, 5.0 / 6, 1e-9);
  EXPECT_NEAR(m.top1, 0.5, 1e-9);
  EXPECT_NEAR(m.peak1, (1.0 + 10) / (1 + 20), 1e-9);
  EXPECT_NEAR(m.within5, 3.0 / 7, 1e-9);
  EXPECT_NEAR(m.within10, 4.0 / 7, 1e-9);
  EXPECT_NEAR(m.within20, 5.0 / 7, 1e-9);
}

// One number for all programs has no order: it must not count as a right one.
TEST(Metrics, EqualPredictionsAreNoAchievement) {
  const Six six;
  const Metrics m = measure(six.data, six.labels, std::vector<double>(7, 3.0));
  EXPECT_DOUBLE_EQ(m.top1, 0);
  EXPECT_DOUBLE_EQ(m.pairs, 0.5);
  EXPECT_TRUE(std::isnan(m.top5)) << "the best of five needs more than five";
  EXPECT_TRUE(std::isnan(m.peak5));
}

TEST(Metrics, TasksThatAreCalledMoreOftenCountMore) {
  const Six six;
  const std::vector<double> predicted{1, 2, 4, 11.5, 11, 40, 5};
  const std::vector<double> weights{3, 1, 1};
  EXPECT_NEAR(measure(six.data, six.labels, predicted, weights).peak1, (3.0 + 10) / (3 + 20), 1e-9);
}

// Programs of two devices differ in time by the device, which is no achievement of an order.
TEST(Metrics, AnOrderIsWithinADevice) {
  Six six;
  six.data.devices = {"H200", "cpu@1"};
  std::vector<Label> labels{{{0, 0}, 1}, {{0, 1}, 100}, {{1, 0}, 2}, {{1, 1}, 90}};
  const std::vector<double> predicted{2, 100, 1, 110};
  EXPECT_DOUBLE_EQ(measure(six.data, labels, predicted).pairs, 0);
}

}  // namespace
}  // namespace sluice::predictor
