// Sweeps. Prevents: a turning point from records that do not belong to it, such as those of another
// program that only ran on some shares.
#include "profiler/runs/sweep.hpp"

#include <gmock/gmock.h>

namespace sluice::profiler {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

Record made_up(const std::string& program, const std::string& task, int sms, double seconds) {
  Record record;
  record.task_name = "fused_" + task;
  record.seconds = {seconds};
  record.details = RecordDetails{.task = task,
                                 .program = program,
                                 .device = sms == 132 ? "H200" : "H200@" + std::to_string(sms),
                                 .sms = sms};
  return record;
}

TEST(TurningPoint, IsTheLeastAmountWithin5PercentOfTheBest) {
  EXPECT_EQ(turning_point({{16, 8e-3}, {64, 1.06e-3}, {96, 1.04e-3}, {132, 1e-3}}), 96);
  EXPECT_EQ(turning_point({{16, 1.04e-3}, {132, 1e-3}}), 16);
  EXPECT_EQ(turning_point({{32, 1e-3}, {64, 2e-3}, {128, 1.5e-3}}), 32) << "more may be slower";
  EXPECT_EQ(turning_point({{1, 5}}), 1);
}

TEST(Sweep, TheFastestProgramsOfEachTaskAreSwept) {
  Record disturbed = made_up("quick", "t", 132, 1e-9);
  disturbed.details->disturbed = true;
  const std::vector<Record> records{made_up("a", "t", 132, 3e-3),
                                    made_up("b", "t", 132, 1e-3),
                                    made_up("c", "t", 132, 2e-3),
                                    made_up("share", "t", 16, 1e-6),
                                    disturbed,
                                    made_up("d", "u", 132, 5e-3)};
  EXPECT_THAT(fastest_programs(records, 2), UnorderedElementsAre("b", "c", "d"));
}

TEST(Sweep, OnlyTheChosenProgramsHaveARow) {
  const std::vector<Record> records{made_up("a", "t", 132, 2e-3), made_up("a", "t", 16, 8e-3),
                                    made_up("b", "t", 132, 3e-3), made_up("b", "t", 16, 6e-3),
                                    made_up("other", "t", 16, 1e-6)};
  const auto rows = rows_by_sms(records, {"a", "b"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].name, "fused_t");
  EXPECT_THAT(rows[0].seconds, ElementsAre(Pair(16, 6e-3), Pair(132, 2e-3)));
}

}  // namespace
}  // namespace sluice::profiler
