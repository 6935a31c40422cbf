// Estimates decide admission and order: they must follow what really runs.
#include "server/timing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace sluice::server {
namespace {

using testing::ElementsAre;

class TimingTest : public testing::Test {
 protected:
  TimingTest() {
    timing_.measured(1, std::array<std::uint64_t, 2>{100, 300});
    timing_.measured(5, std::array<std::uint64_t, 2>{500, 700});
  }
  Timing timing_;
};

TEST_F(TimingTest, IsLinearBetweenMeasuredSizesAndInProportionBeyond) {
  EXPECT_THAT(timing_.block_ns(1), ElementsAre(100, 300));
  EXPECT_THAT(timing_.block_ns(3), ElementsAre(300, 500));
  EXPECT_THAT(timing_.block_ns(10), ElementsAre(1000, 1400));
  EXPECT_EQ(timing_.whole_ns(5), 1200u);
}

TEST_F(TimingTest, FollowsOneBlockWithoutChangingTheOthers) {
  for (int i = 0; i < 50; ++i) timing_.ran(1, 1, 1, 600);
  EXPECT_EQ(timing_.block_ns(1)[0], 100u);
  EXPECT_NEAR(static_cast<double>(timing_.block_ns(1)[1]), 600, 1);
  EXPECT_THAT(timing_.block_ns(5), ElementsAre(500, 700));
}

TEST_F(TimingTest, SharesAWholeRunAmongTheBlocks) {
  for (int i = 0; i < 50; ++i) timing_.ran(1, 0, 2, 800);
  EXPECT_NEAR(static_cast<double>(timing_.block_ns(1)[0]), 200, 1);
  EXPECT_NEAR(static_cast<double>(timing_.block_ns(1)[1]), 600, 1);
}

TEST_F(TimingTest, OneSlowRunMovesTheEstimateByAFifth) {
  timing_.ran(1, 0, 1, 1100);
  EXPECT_EQ(timing_.block_ns(1)[0], 300u);
}

}  // namespace
}  // namespace sluice::server
