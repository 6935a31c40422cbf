#include "runner/run/job_table.hpp"

#include <gtest/gtest.h>

#include "runner/job_log.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

std::string csv(const std::string& rows) { return std::string(kJobCsvHeader) + "\n" + rows; }

TEST(JobTable, LeavesOutTheWarmUpAndATornLastLine) {
  // The warm-up includes loading costs, and a SIGKILL may leave an incomplete line.
  const test::TempFolder folder;
  const std::string file = folder.write("a.csv", csv("100,900,99.5,0,0\n"
                                                     "1000000000,1500000000,1.5,0,0\n"
                                                     "2000000000,3000000000,2.5,0,0\n"
                                                     "3000000000,4000000000,3"));
  const JobTable table = read_job_table(file, "");
  EXPECT_EQ(table.jct_ms, (std::vector<double>{1.5, 2.5}));
  EXPECT_DOUBLE_EQ(table.span_s, 2.0);
}

TEST(JobTable, CountsJobsThatStartedLate) {
  const test::TempFolder folder;
  const std::string jobs = folder.write("a.csv", csv("1,2,1,0,0\n"));
  const std::string arrivals =
      folder.write("a.arrivals.csv", "arrival_ms,queued_ms\n0.0,0.05\n6.0,1.15\n12.0,3.0\n");
  const JobTable table = read_job_table(jobs, arrivals);
  EXPECT_EQ(table.late, 2U);
  EXPECT_DOUBLE_EQ(table.mean_queued_ms, 1.4);
}

TEST(JobTable, AMissingFileHasNoJobs) {
  const JobTable table = read_job_table("/nonexistent.csv", "");
  EXPECT_TRUE(table.jct_ms.empty());
  EXPECT_DOUBLE_EQ(table.span_s, 0);
}

TEST(JobCounter, FollowsAGrowingLog) {
  const test::TempFolder folder;
  JobCsv log(folder.file("a.csv"));
  JobCounter counter(folder.file("a.csv"));
  EXPECT_EQ(counter.count(), 0U);
  log.job({}, 0, 0);
  EXPECT_EQ(counter.count(), 0U);  // the warm-up
  log.job({}, 0, 0);
  log.job({}, 0, 0);
  EXPECT_EQ(counter.count(), 2U);
}

}  // namespace
}  // namespace sluice::runner
