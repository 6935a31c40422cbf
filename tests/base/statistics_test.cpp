#include "base/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::base {
namespace {

TEST(Percentile, AgreesWithNumpyOnUnsortedSamples) {
  // numpy.percentile([4, 1, 3, 2], [0, 25, 50, 99, 100]) = 1, 1.75, 2.5, 3.97, 4
  const std::vector<double> sample{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(percentile(sample, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(sample, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(percentile(sample, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile(sample, 0.99), 3.97);
  EXPECT_DOUBLE_EQ(percentile(sample, 1), 4);
}

TEST(Percentile, OneJobIsItsOwnTail) { EXPECT_DOUBLE_EQ(percentile({7.5}, 0.99), 7.5); }

TEST(Percentile, NoJobGivesNoNumber) {
  // A zero here would be read as a perfect latency.
  EXPECT_TRUE(std::isnan(percentile({}, 0.5)));
  EXPECT_TRUE(std::isnan(mean({})));
}

TEST(Mean, IsTheMean) { EXPECT_DOUBLE_EQ(mean({1, 2, 6}), 3); }

}  // namespace
}  // namespace sluice::base
