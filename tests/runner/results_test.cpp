#include "runner/run/results.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "runner/job_log.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

RunResult result_of(ModelResult model, bool simulated) {
  RunResult result;
  result.gpus = {simulated, simulated ? 10.0 : 1.0, {"GPU"}, "", {"sm_90"}};
  result.stopped_by = "time";
  result.models.push_back(std::move(model));
  return result;
}

TEST(Results, ThroughputIsInGpuTime) {
  const test::TempFolder folder;
  Model model;
  model.output_file_path = folder.path();
  model.output_file_name = "m";
  JobCsv csv(model.output_file(".csv"));
  csv.job({0, 1, 50}, 0, 0);
  csv.job({1'000'000'000, 1'500'000'000, 50}, 0, 0);
  csv.job({1'500'000'000, 2'000'000'000, 50}, 0, 0);
  // Two jobs in a real second are twenty in a second of a simulated GPU that is ten times slower.
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

// Prevents: a run that was too short for its model shows dashes and a remark on p99.
TEST(Results, ReportARunThatWasTooShortForAnyJob) {
  Model model;
  model.output_file_path = "/nonexistent";
  model.output_file_name = "slow";
  RunResult result = result_of(summarise(model, 1, 1, true, ""), true);
  result.duration_s = 20;
  const std::string table = results_table(result);
  EXPECT_NE(table.find("no job of slow ended in 20 s: run longer (--duration)\n"),
            std::string::npos)
      << table;
  EXPECT_EQ(table.find("has fewer than"), std::string::npos) << table;
  result.models.front().died = "exited with 1";
  EXPECT_EQ(results_table(result).find("run longer"), std::string::npos);
}

TEST(Results, ReportWhetherTheGpuIsSimulated) {
  EXPECT_NE(results_table(result_of({}, true)).find("simulated GPU, real time / 10"),
            std::string::npos);
  EXPECT_EQ(results_table(result_of({}, false)).find("simulated"), std::string::npos);
  EXPECT_EQ(results_json(result_of({}, true))["gpu"]["kind"], "simulated");
  EXPECT_EQ(results_json(result_of({}, false))["gpu"]["kind"], "real");
}

TEST(Results, SplitAModelsJobsByCollisionsWithHigherPriorityOnly) {
  ModelResult low;
  low.table.jct_ms = {1, 3};
  low.table.spans = {{100, 200}, {300, 400}};
  ModelResult high;
  high.priority = 2;
  high.table.jct_ms = {5};
  high.table.spans = {{350, 360}};
  ModelResult middle;
  middle.priority = 1;
  middle.table.jct_ms = {7};
  middle.table.spans = {{100, 200}};
  std::vector<ModelResult> models{low, high, middle};
  split_by_collisions(models);
  EXPECT_EQ(models[0].collided->jobs, 2U);
  EXPECT_EQ(models[0].uncollided->jobs, 0U);
  EXPECT_FALSE(models[1].collided) << "no model has a higher priority";
  EXPECT_EQ(models[2].collided->jobs, 0U) << "a job of lower priority is not a collision";
  EXPECT_DOUBLE_EQ(models[2].uncollided->mean_ms, 7);

  RunResult result = result_of(models[0], false);
  EXPECT_NE(results_table(result).find("\n  collided  "), std::string::npos)
      << results_table(result);
  EXPECT_EQ(results_json(result)["models"][0]["collided"]["jobs"], 2);
  EXPECT_TRUE(results_json(result)["models"][0]["uncollided"]["mean_ms"].is_null());
  result.models[0] = models[1];
  EXPECT_TRUE(results_json(result)["models"][0]["collided"].is_null());
}

TEST(Results, P99IsThe99thPercentile) {
  ModelResult low;
  for (std::uint64_t i = 0; i <= 100; ++i) {
    low.table.jct_ms.push_back(static_cast<double>(i));
    low.table.spans.push_back({i, i});
  }
  ModelResult high;
  high.priority = 1;
  std::vector<ModelResult> models{low, high};
  split_by_collisions(models);
  EXPECT_DOUBLE_EQ(models[0].uncollided->p50_ms, 50);
  EXPECT_DOUBLE_EQ(models[0].uncollided->p99_ms, 99);
}

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> found(1);
  for (const char c : line) {
    if (c == ',') {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

TEST(Results, ColumnsOfTheCsvHoldWhatTheHeaderSays) {
  ModelResult model;
  model.log = "critical";
  model.pid = 12;
  model.priority = 3;
  model.policy = "gate";
  model.all = {4, 5, 6, 7};
  model.collided = {8, 9, 10, 11};
  model.uncollided = {16, 17, 18, 19};
  model.throughput_per_s = 20;
  const auto value_of = [](const ModelResult& of, const std::string& column) {
    std::istringstream csv(results_csv(result_of(of, true)));
    std::string header;
    std::string row;
    std::getline(csv, header);
    std::getline(csv, row);
    const std::vector<std::string> names = cells(header);
    const std::vector<std::string> values = cells(row);
    EXPECT_EQ(names.size(), values.size()) << row;
    const auto at = std::find(names.begin(), names.end(), column) - names.begin();
    return values.at(static_cast<std::size_t>(at));
  };
  const std::vector<std::pair<std::string, std::string>> expected{
      {"log", "critical"},
      {"pid", "12"},
      {"priority", "3"},
      {"policy", "gate"},
      {"jobs", "4"},
      {"mean_ms", "5.000000"},
      {"p50_ms", "6.000000"},
      {"p99_ms", "7.000000"},
      {"throughput_per_s", "20.000000"},
      {"simulated", "1"},
      {"on_cpu", "0"},
      {"collided_jobs", "8"},
      {"collided_mean_ms", "9.000000"},
      {"collided_p50_ms", "10.000000"},
      {"collided_p99_ms", "11.000000"},
      {"uncollided_jobs", "16"},
      {"uncollided_p99_ms", "19.000000"}};
  for (const auto& [column, value] : expected) EXPECT_EQ(value_of(model, column), value) << column;
  EXPECT_EQ(value_of(ModelResult{}, "collided_jobs"), "");
  EXPECT_EQ(value_of(ModelResult{}, "uncollided_p99_ms"), "");
}

Model with_target(const char* text) {
  Model model;
  model.target = *shm::parse_target(text);
  return model;
}

nlohmann::json status_of(int pid, const char* state, const nlohmann::json& limit_ns) {
  return {{"clients",
           {{{"pid", pid},
             {"jobs_total_ns", 1000},
             {"target",
              {{"state", state},
               {"limit_ns", limit_ns},
               {"alone_ns", 20'000'000},
               {"open_ns", 630}}}}}}};
}

// Prevents: real time compared with GPU time, and 100 % of jobs in time when one was late.
TEST(Results, JobsAreJudgedByTheLimitInGpuTime) {
  std::vector<double> jct_ms(2000, 3.0);
  jct_ms.back() = 3.001;
  const auto target =
      target_result(with_target("p99=1.5x"), 7, 10, jct_ms, status_of(7, "kept", 30'000'000));
  ASSERT_TRUE(target);
  EXPECT_EQ(
      target_text(*target),
      "target p99=1.5x (3.000 ms): 99.9 % of 2000 jobs in time; gates open for 63 % of their time");
  ModelResult model;
  model.target = target;
  const nlohmann::json json = results_json(result_of(model, true))["models"][0]["target"];
  EXPECT_EQ(json["in_time"], 1999);
  EXPECT_DOUBLE_EQ(json["limit_ms"], 3);
  EXPECT_DOUBLE_EQ(json["alone_ms"], 2);
  EXPECT_DOUBLE_EQ(json["open_share"], 0.63);
  EXPECT_NE(results_csv(result_of(model, true)).find(",p99=1.5x,3.000000,0.999500,0.630000\n"),
            std::string::npos);
  EXPECT_NE(results_table(result_of(model, true)).find("\n  target p99=1.5x (3.000 ms): "),
            std::string::npos);
}

TEST(Results, ATargetThatIsNotInForceIsSaid) {
  const std::vector<double> one{2.0};
  const auto text = [&](const char* target, const nlohmann::json& status) {
    return target_text(*target_result(with_target(target), 7, 1, one, status));
  };
  EXPECT_EQ(
      text("p99=1.5x", status_of(7, "learning", nullptr)),
      "target p99=1.5x; still learning how long its jobs take alone, so the gates closed at once");
  EXPECT_EQ(text("p99=3ms", status_of(7, "missed", 3'000'000)),
            "target p99=3ms: 100 % of 1 job in time; gates open for 63 % of their time; cannot be "
            "kept (its "
            "jobs take 20.000 ms alone), so the gates close at once, as without one");
  // The worker died, or another process has its pid in the status.
  EXPECT_EQ(text("p99=3ms", nullptr), "target p99=3ms: 100 % of 1 job in time");
  EXPECT_EQ(text("p99=1.5x", status_of(8, "kept", 1)), "target p99=1.5x");
  EXPECT_FALSE(target_result({}, 7, 1, one, status_of(7, "kept", 1)));
  ModelResult model;
  model.target = target_result(with_target("p99=1.5x"), 7, 1, one, nullptr);
  EXPECT_TRUE(results_json(result_of(model, false))["models"][0]["target"]["in_time"].is_null());
}

TEST(Results, AModelOnTheCpuIsNotTakenForASimulatedOne) {
  ModelResult model;
  model.on_cpu = true;
  const RunResult result = result_of(model, true);
  EXPECT_NE(results_table(result).find("on the CPU, not gated"), std::string::npos);
  EXPECT_EQ(results_table(result).find("simulated GPU"), std::string::npos);
  EXPECT_EQ(results_json(result)["models"][0]["on_cpu"], true);
}

}  // namespace
}  // namespace sluice::runner
