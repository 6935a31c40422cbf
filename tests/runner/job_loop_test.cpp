#include "runner/worker/job_loop.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "base/clock.hpp"
#include "runner/run/job_table.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

/// A backend without a GPU that records the order of its calls.
class FakeBackend : public engine::Backend {
 public:
  [[nodiscard]] std::string describe() const override { return "nothing"; }
  void launch_job() override { calls += "L"; }
  void wait_for_job() override { calls += "W"; }
  [[nodiscard]] Memory peak_memory() const override { return {1024, 2048}; }
  std::string calls;
};

class JobLoopTest : public ::testing::Test {
 protected:
  JobLoopTest() {
    model.model_name = "m";
    model.output_file_path = folder.path();
    model.output_file_name = "model_B";
    model.priority = 1;
    model.control.hooked = true;
    model.source = {{"model_name", "m"}};
    options.experiment_file = "exp.json";
    options.device_name = "GPU";
    options.jobs = 2;
  }
  [[nodiscard]] std::string log() const { return test::read_file(folder.file("model_B.log")); }

  test::TempFolder folder;
  Model model;
  WorkerOptions options;
  FakeBackend backend;
};

TEST_F(JobLoopTest, WritesThePublishedLog) {
  run_jobs(model, options, backend, 0);
  const std::regex expected(
      "device: 0 GPU\n"
      "configuration: exp\\.json\n"
      "model: m \\(nothing\\)\n"
      "\\{\"model_name\":\"m\"\\}\n"
      "(\\d{16} kernelGroupStart\n\n\\d{16} kernelGroupEnd\n\nJCT \\d{19} 1 \\d+\\.\\d{6}\n\n){2}");
  EXPECT_TRUE(std::regex_match(log(), expected)) << log();
  EXPECT_EQ(backend.calls, "LWLWLW");  // the warm-up is one of them
}

// A job is announced when its preparation begins. Its JCT counts from the begin of the job itself.
TEST_F(JobLoopTest, PreparationComesBeforeTheJob) {
  model.announce_ms = 1000;
  const std::uint64_t begin = base::monotonic_ns();
  run_jobs(model, options, backend, 0);
  EXPECT_GE(base::monotonic_ns() - begin, 3 * 1'000'000'000U) << "the warm-up is prepared too";
  std::smatch jct;
  const std::string text = log();
  ASSERT_TRUE(std::regex_search(text, jct, std::regex("JCT \\d{19} 1 (\\d+\\.\\d{6})")));
  EXPECT_LT(std::stod(jct[1]), 1000.0);
}

TEST_F(JobLoopTest, GroupLinesOnlyForHookedModelsAbovePriorityZero) {
  model.priority = 0;
  run_jobs(model, options, backend, 0);
  EXPECT_EQ(log().find("kernelGroup"), std::string::npos);
  model.priority = 1;
  model.control.hooked = false;
  run_jobs(model, options, backend, 0);
  EXPECT_EQ(log().find("kernelGroup"), std::string::npos);
}

TEST_F(JobLoopTest, CsvBeginsWithTheWarmUp) {
  run_jobs(model, options, backend, 0);
  const std::string csv = test::read_file(folder.file("model_B.csv"));
  const std::regex expected(
      "start_timestamp_ns,end_timestamp_ns,jct_ms,max_allocated_gpu_memory_allocated_byte,"
      "max_reserved_gpu_memory_byte\n"
      "(\\d{19},\\d{19},\\d+\\.\\d{6},1024,2048\n){3}");
  EXPECT_TRUE(std::regex_match(csv, expected)) << csv;
}

TEST_F(JobLoopTest, SimulatedRunsExplainTheirTimes) {
  options.simulated = true;
  options.time_scale = 10;
  run_jobs(model, options, backend, 0);
  EXPECT_NE(log().find("device: 0 GPU (simulated: JCT is real time / 10, time stamps are real)\n"),
            std::string::npos)
      << log();
}

TEST_F(JobLoopTest, OpenLoopRecordsQueueingTimes) {
  // All jobs are due at once, so every job after the first waits for the jobs before it.
  model.arrival = {.kind = Arrival::Kind::kPeriodic, .period_ms = 1e-6};
  run_jobs(model, options, backend, 0);
  const std::string arrivals = test::read_file(folder.file("model_B.arrivals.csv"));
  EXPECT_TRUE(std::regex_match(
      arrivals, std::regex("arrival_ms,queued_ms\n(\\d+\\.\\d{6},\\d+\\.\\d{6}\n){2}")))
      << arrivals;
}

}  // namespace
}  // namespace sluice::runner
