// Estimates decide admission and order: they must follow what really runs.
#include "server/figures/timing.hpp"

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

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() {
    limits_.measured(1, 400);
    limits_.measured(5, 1200);
  }
  Limits limits_;
};

TEST_F(LimitsTest, AreThoseOfTheNumberOfItems) {
  // A request of many items would look late by the limit of one.
  EXPECT_EQ(limits_.ns(1), 400u);
  EXPECT_EQ(limits_.ns(3), 800u);
  EXPECT_EQ(limits_.ns(5), 1200u);
  EXPECT_EQ(limits_.ns(10), 2400u);
  EXPECT_EQ(limits_.ns(0), 400u) << "of a request that was refused before its items were counted";
}

TEST_F(LimitsTest, OnlyAShorterExecutionOfThatSizeCorrectsOne) {
  limits_.ran(5, 900);
  limits_.ran(5, 3000);
  EXPECT_EQ(limits_.ns(5), 900u);
  EXPECT_EQ(limits_.ns(1), 400u);
}

TEST_F(LimitsTest, AnExecutionReplacesAGuessBetweenKnownSizes) {
  limits_.ran(3, 1100);
  EXPECT_EQ(limits_.ns(3), 1100u);
  EXPECT_EQ(limits_.ns(2), 750u);
}

}  // namespace
}  // namespace sluice::server
