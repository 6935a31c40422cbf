#include "runner/job_log.hpp"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

const JobRecord kJob{1680298829249521013, 1680298829288750242, 39.229305};

TEST(JobLog, IsTheFormatThatPublishedParsersRead) {
  const test::TempFolder folder;
  const std::string path = folder.file("model_B.log");
  JobLog log(path, 1, {"device: 0 GPU", "{}"});
  log.group_start(1680298829249579999);
  log.group_end(1680298829288629000);
  log.job(kJob);
  // Read while the log is open: every written line must survive a SIGKILL of the writer.
  EXPECT_EQ(test::read_file(path),
            "device: 0 GPU\n"
            "{}\n"
            "1680298829249579 kernelGroupStart\n\n"
            "1680298829288629 kernelGroupEnd\n\n"
            "JCT 1680298829288750242 1 39.229305\n\n");
}

TEST(JobLog, WritesShortTimesWithAllDigits) {
  const test::TempFolder folder;
  JobLog log(folder.file("a.log"), 0, {});
  log.job({0, 5, 0.5});
  EXPECT_EQ(test::read_file(folder.file("a.log")), "JCT 5 0 0.500000\n\n");
}

TEST(JobCsv, HasThePublishedColumns) {
  const test::TempFolder folder;
  JobCsv csv(folder.file("a.csv"));
  csv.job(kJob, 1024, 2048);
  EXPECT_EQ(test::read_file(folder.file("a.csv")),
            "start_timestamp_ns,end_timestamp_ns,jct_ms,max_allocated_gpu_memory_allocated_byte,"
            "max_reserved_gpu_memory_byte\n"
            "1680298829249521013,1680298829288750242,39.229305,1024,2048\n");
}

}  // namespace
}  // namespace sluice::runner
