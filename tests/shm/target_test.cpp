#include "shm/target.hpp"

#include <gtest/gtest.h>

namespace sluice::shm {
namespace {

// Prevents: a target that means another time than the user wrote.
TEST(Target, ReadsTimesAndMultiples) {
  const auto is = [](const char* text, std::uint32_t per_mille, Target::Unit unit,
                     std::uint64_t limit) {
    const auto target = parse_target(text);
    ASSERT_TRUE(target) << text;
    EXPECT_EQ(*target, (Target{per_mille, unit, limit})) << text;
    EXPECT_EQ(Target::unpack(target->pack()), *target) << text;
  };
  is("p99=50ms", 990, Target::Unit::kNanoseconds, 50'000'000);
  is("p99.9=1.5s", 999, Target::Unit::kNanoseconds, 1'500'000'000);
  is("p50=800us", 500, Target::Unit::kNanoseconds, 800'000);
  is("p95=0.5us", 950, Target::Unit::kNanoseconds, 500);
  is("p99=1.2x", 990, Target::Unit::kTimesAlone, 1200);
  is("p99=1x", 990, Target::Unit::kTimesAlone, 1000);
  is("p99=3600s", 990, Target::Unit::kNanoseconds, Target::kMostNs);
  EXPECT_EQ(parse_target("none"), Target{});
  const auto of_steps = parse_target("step p99=25ms");
  ASSERT_TRUE(of_steps && of_steps->of_steps && of_steps->valid());
  EXPECT_EQ(of_steps->limit, 25'000'000U);
  EXPECT_EQ(Target::unpack(of_steps->pack()), *of_steps);
}

TEST(Target, SuggestsWhatWasLikelyMeant) {
  EXPECT_EQ(target_hint("p99=50"), "; did you mean 'p99=50ms'?");
  EXPECT_EQ(target_hint("50ms"), "; did you mean 'p99=50ms'?");
  EXPECT_EQ(target_hint("1.2x", '"'), "; did you mean \"p99=1.2x\"?");
  EXPECT_EQ(target_hint("50"), "; did you mean 'p99=50ms'?");
  EXPECT_EQ(target_hint("95=2s"), "; did you mean 'p95=2s'?");
  EXPECT_EQ(target_hint("soon"), "");
  EXPECT_NE(check_target("p99=50").find("none; did you mean"), std::string::npos);
}

// Prevents: an invalid word of a board or a message that is taken for a target.
TEST(Target, AnInvalidWordIsSeen) {
  EXPECT_TRUE(Target{}.valid());
  EXPECT_FALSE(Target::unpack(5).valid()) << "a limit and no percentile";
  EXPECT_FALSE(Target::unpack(std::uint64_t{990} << 48U).valid()) << "no limit";
  EXPECT_FALSE((Target{1001, Target::Unit::kNanoseconds, 5}.valid()));
  EXPECT_FALSE((Target{990, Target::Unit::kTimesAlone, 999}.valid()));
}

}  // namespace
}  // namespace sluice::shm
