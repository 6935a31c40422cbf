#include "runner/run/results.hpp"

#include <gtest/gtest.h>

#include "runner/job_log.hpp"
#include "tests/runner/temp_folder.hpp"

namespace sluice::runner {
namespace {

RunResult result_of(ModelResult model, bool simulated) {
  RunResult result;
  result.gpus = {simulated, simulated ? 10.0 : 1.0, {"GPU"}, ""};
  result.stopped_by = "time";
  result.models.push_back(std::move(model));
  return result;
}

TEST(Results, ThroughputIsInTheTimeOfTheGpu) {
  const test::TempFolder folder;
  Model model;
  model.output_file_path = folder.path();
  model.output_file_name = "m";
  JobCsv csv(model.output_file(".csv"));
  csv.job({0, 1, 50}, 0, 0);
  csv.job({1'000'000'000, 1'500'000'000, 50}, 0, 0);
  csv.job({1'500'000'000, 2'000'000'000, 50}, 0, 0);
  // Two jobs in a real second are twenty in a second of a GPU that is ten times slower.
  EXPECT_DOUBLE_EQ(summarise(model, 1, 10, false, "").throughput_per_s, 20);
  EXPECT_DOUBLE_EQ(summarise(model, 1, 1, false, "").throughput_per_s, 2);
}

TEST(Results, NoJobIsNullAndADashButNeverZero) {
  Model model;
  model.output_file_path = "/nonexistent";
  const RunResult result = result_of(summarise(model, 1, 10, false, "exited with 1"), true);
  EXPECT_TRUE(results_json(result)["models"][0]["p99_ms"].is_null());
  EXPECT_EQ(results_json(result)["models"][0]["died"], "exited with 1");
  EXPECT_NE(results_table(result).find(" -  "), std::string::npos) << results_table(result);
}

TEST(Results, SayWhetherTheyAreSimulated) {
  EXPECT_NE(results_table(result_of({}, true)).find("simulated GPU, real time / 10"),
            std::string::npos);
  EXPECT_EQ(results_table(result_of({}, false)).find("simulated"), std::string::npos);
  EXPECT_EQ(results_json(result_of({}, true))["gpu"]["kind"], "simulated");
  EXPECT_EQ(results_json(result_of({}, false))["gpu"]["kind"], "real");
}

}  // namespace
}  // namespace sluice::runner
