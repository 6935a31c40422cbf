// Records of two programs at once. Prevents: a slowdown that counts the time in which a program ran
// alone, a pair that is measured twice, and a file that ends with a torn line.
#include "profiler/records/pair_record.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "profiler/runs/pairs.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

PairRecord made_up() {
  return {.kind = "stream",
          .device = "H200",
          .sides = {PairSide{"p", "fused_conv"}, PairSide{"q", "fused_add"}},
          .times = {.alone_s = {1e-3, 5e-4},
                    .runs = {4, 8},
                    .together_s = {6e-3, 6e-3},
                    .serial_s = 8e-3,
                    .spread = 1.01}};
}

TEST(PairEffect, EqualProgramsThatShareEverythingTakeTwiceAsLong) {
  const PairEffect effect = effect_of(
      {.alone_s = {1e-3, 1e-3}, .runs = {4, 4}, .together_s = {8e-3, 8e-3}, .serial_s = 8e-3});
  EXPECT_DOUBLE_EQ(effect.speedup, 1);
  EXPECT_DOUBLE_EQ(effect.slowdown[0], 2);
  EXPECT_DOUBLE_EQ(effect.slowdown[1], 2);
}

TEST(PairEffect, ProgramsThatDoNotTouchEachOtherRunTwiceAsFast) {
  const PairEffect effect = effect_of(
      {.alone_s = {1e-3, 2e-3}, .runs = {4, 2}, .together_s = {4e-3, 4e-3}, .serial_s = 8e-3});
  EXPECT_DOUBLE_EQ(effect.speedup, 2);
  EXPECT_DOUBLE_EQ(effect.slowdown[0], 1);
  EXPECT_DOUBLE_EQ(effect.slowdown[1], 1);
}

TEST(PairEffect, TheTimeAfterTheOtherEndedDoesNotCount) {
  // The first ends after 5 ms. Then 2 ms of the second are left, which it does alone: in the 5 ms
  // it did 2 of its 4.
  const PairEffect effect = effect_of(
      {.alone_s = {1e-3, 1e-3}, .runs = {4, 4}, .together_s = {5e-3, 7e-3}, .serial_s = 8e-3});
  EXPECT_NEAR(effect.slowdown[0], 1.25, 1e-9);
  EXPECT_NEAR(effect.slowdown[1], 2.5, 1e-9);
  EXPECT_NEAR(effect.speedup, 8.0 / 7, 1e-9);
}

TEST(PairEffect, AProgramThatOnlyRunsAfterwardsGotNothing) {
  const PairEffect effect = effect_of(
      {.alone_s = {1e-3, 1e-3}, .runs = {4, 4}, .together_s = {4e-3, 8e-3}, .serial_s = 8e-3});
  EXPECT_DOUBLE_EQ(effect.slowdown[0], 1);
  EXPECT_TRUE(std::isinf(effect.slowdown[1]));
}

TEST(PairEffect, WithoutABreakTheShareOfEachSpeedIsTheSpeedUp) {
  // 100 runs in 0.2 s instead of 200, and 150 instead of 200.
  const PairEffect effect =
      effect_of({.alone_s = {1e-3, 1e-3}, .runs = {100, 150}, .together_s = {0.2, 0.2}});
  EXPECT_NEAR(effect.slowdown[0], 2, 1e-9);
  EXPECT_NEAR(effect.slowdown[1], 4.0 / 3, 1e-9);
  EXPECT_NEAR(effect.speedup, 1.25, 1e-9);
}

TEST(PairRecords, SurviveWritingAndReading) {
  const PairRecord record = made_up();
  const std::string line = to_line(record);
  EXPECT_THAT(line, testing::HasSubstr("\"speedup\":1.3333"));
  const PairRecord back = pair_record_of(line);
  EXPECT_EQ(to_line(back), line);
  EXPECT_EQ(back.sides, record.sides);
  EXPECT_EQ(back.times.runs, record.times.runs);
  PairRecord failed = record;
  failed.error = MeasureError::kRunTimeout;
  EXPECT_EQ(pair_record_of(to_line(failed)).error, MeasureError::kRunTimeout);
  EXPECT_THROW((void)pair_record_of("{}"), base::UsageError);
}

TEST(PairRecords, AnInfiniteSlowdownIsNoNumberInTheFile) {
  PairRecord record = made_up();
  record.times.alone_s = {1e-3, 1e-3};
  record.times.runs = {4, 4};
  record.times.together_s = {4e-3, 8e-3};
  EXPECT_THAT(to_line(record), testing::HasSubstr("\"slowdown\":[1.0,null]"));
  EXPECT_NO_THROW((void)pair_record_of(to_line(record)));
}

TEST(PairRecords, ATornLastLineIsDropped) {
  const test::TempFolder folder;
  const std::string line = to_line(made_up());
  std::ofstream(folder.file("p.jsonl")) << line << '\n' << line.substr(0, 30);
  const PairRecords found = read_pair_records(folder.file("p.jsonl"));
  EXPECT_EQ(found.records.size(), 1U);
  EXPECT_TRUE(found.torn);
}

TEST(Pairs, AreDifferentAndFewerAreTheBeginningOfMore) {
  const auto all = choose_pairs(5, 100, 7);
  EXPECT_EQ(all.size(), 10U);
  const std::set<std::array<std::size_t, 2>> distinct(all.begin(), all.end());
  EXPECT_EQ(distinct.size(), 10U);
  for (const auto& [a, b] : all) EXPECT_LT(a, b);
  const auto few = choose_pairs(5, 4, 7);
  EXPECT_EQ(few, std::vector(all.begin(), all.begin() + 4));
  EXPECT_NE(all, choose_pairs(5, 100, 8)) << "the seed counts";
}

TEST(Pairs, AreOfTheFastestProgramsThatTakeTheRightTime) {
  const auto record = [](const std::string& program, const std::string& task, double seconds,
                         const std::string& device = "H200") {
    Record made;
    made.seconds = {seconds};
    made.details = RecordDetails{.task = task, .program = program, .device = device};
    return made;
  };
  Record disturbed = record("disturbed", "t", 4e-5);
  disturbed.details->disturbed = true;
  const auto found = fastest_between(
      {record("slow", "t", 9e-5), record("best", "t", 5e-5), record("tiny", "t", 1e-6), disturbed,
       record("elsewhere", "t", 4e-5, "H200@16"), record("other", "u", 2e-4),
       record("changed", "v", 1e-4), record("changed", "v", 1)},
      "H200", 3e-5, 1e-3);
  ASSERT_EQ(found.size(), 2U) << "of two records the later counts";
  EXPECT_EQ(found.at("t").details->program, "best");
  EXPECT_EQ(found.at("u").details->program, "other");
}

}  // namespace
}  // namespace sluice::profiler
