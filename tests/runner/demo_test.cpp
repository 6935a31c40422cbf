// `sluice demo` as a whole, with phases too short for its figures to mean anything.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/runner/run_fixture.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

class DemoTest : public test::RunTest {};

TEST_F(DemoTest, EndsWithATableOfAllPolicies) {
  const base::Captured got =
      run("sluice-demo", {"--gpu", "sim", "--seconds-per-phase", "3", "--out", "demo"});
  ASSERT_EQ(got.exit_code, 0) << got.err << got.out;
  const json results = json::parse(read("demo/results.json"));
  EXPECT_EQ(results["simulated"], true);
  const std::string table = read("demo/table.txt");
  std::vector<std::string> policies;
  for (const json& row : results["together"]) {
    const bool notice = row["notice_ms"] != 0;
    policies.push_back(row["policy"].get<std::string>() + (notice ? "+notice" : ""));
    EXPECT_GT(row["critical"]["jobs"], 0) << row;
    EXPECT_GT(row["best_effort_launches"], 0) << row;
    EXPECT_NE(table.find("\n" + policies.back() + " "), std::string::npos) << table;
    // Every launch is either subject to the gate or bypassed for a reason; the counters are read
    // one after the other while the process launches on.
    EXPECT_NEAR(row["best_effort_launches"].get<double>(),
                row["best_effort_gated"].get<double>() + row["best_effort_bypassed"].get<double>(),
                5);
    EXPECT_EQ(row["best_effort_bypassed"] == 0, row["policy"] != "none") << row;
  }
  EXPECT_EQ(policies, (std::vector<std::string>{"none", "gate", "sync:1", "event:2", "device:4",
                                                "device:200us", "device:200us+notice"}));
  EXPECT_NE(table.find("SIMULATED"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "demo/device-4/models_pid.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "models_pid.json"));
  expect_nothing_left();
}

TEST_F(DemoTest, CtrlCEndsThePhaseThatRuns) {
  const pid_t pid =
      start("sluice-demo", {"--gpu", "sim", "--seconds-per-phase", "3000", "--out", "demo"});
  ASSERT_TRUE(eventually([&] {
    return read("demo/critical-alone/critical.log").find("\nJCT ") != std::string::npos;
  }));
  kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid), 130);
  expect_nothing_left();
}

}  // namespace
}  // namespace sluice::runner
