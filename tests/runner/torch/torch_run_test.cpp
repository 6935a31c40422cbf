// Whole runs of PyTorch models on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tests/runner/torch/torch_fixture.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

struct Row {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  double jct_ms = 0;
};

class TorchRun : public test::TorchTest {
 protected:
  /// The CSV log, the warm-up first.
  [[nodiscard]] std::vector<Row> rows(const std::string& log) const {
    std::istringstream in(read("logs/" + log + ".csv"));
    std::vector<Row> found;
    std::string line;
    std::getline(in, line);
    for (Row row; std::getline(in, line);) {
      unsigned long long start = 0;
      unsigned long long end = 0;
      if (std::sscanf(line.c_str(), "%llu,%llu,%lf", &start, &end, &row.jct_ms) != 3) continue;
      row.start_ns = start;
      row.end_ns = end;
      found.push_back(row);
    }
    return found;
  }
  [[nodiscard]] std::set<std::string> hashes(const std::string& log) const {
    std::istringstream in(read("logs/" + log + ".digest"));
    std::set<std::string> found;
    for (std::string job, hash; in >> job >> hash;) found.insert(hash);
    return found;
  }
};

TEST_F(TorchRun, RunsUntilItIsKilledAndSaysThatNothingIsGated) {
  write_models(json::array({model("classifier", "low"), model("classifier", "high", 1)}));
  const base::Captured got = sluice_run({"--digest"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_NE(got.out.find("CPU: low, high: no real GPU here"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("NOTHING IS GATED"), std::string::npos);
  EXPECT_NE(read("logs/high.log").find("device: CPU (no real GPU here: nothing is gated"),
            std::string::npos);
  EXPECT_NE(read("logs/high.out").find("nothing is gated"), std::string::npos);
  EXPECT_NE(read("logs/high.log").find(" kernelGroupStart\n\n"), std::string::npos);
  EXPECT_GT(jobs("low"), 0U);
  EXPECT_GT(jobs("high"), 0U);
  EXPECT_EQ(worker_pids().size(), 2U);
  expect_nothing_left();

  // The load barrier: nobody's first job starts before everybody's warm-up has ended.
  const auto low = rows("low");
  const auto high = rows("high");
  EXPECT_GE(low.at(1).start_ns, high.at(0).end_ns);
  EXPECT_GE(high.at(1).start_ns, low.at(0).end_ns);
  // Same model, same weights, same input: the same bits, alone or next to another.
  EXPECT_EQ(hashes("low").size(), 1U);
  EXPECT_EQ(hashes("low"), hashes("high"));

  const json results = json::parse(read("logs/results.json"));
  EXPECT_EQ(results["models"][0]["on_cpu"], true);
  EXPECT_EQ(results["models"][0]["policy"], "unhooked");
  EXPECT_EQ(results["models"][0]["collided"]["jobs"].get<std::size_t>() +
                results["models"][0]["uncollided"]["jobs"].get<std::size_t>(),
            results["models"][0]["jobs"].get<std::size_t>());
  EXPECT_TRUE(results["models"][1]["collided"].is_null());
}

TEST_F(TorchRun, TimeIsRealOnTheCpuBesideASimulatedGpu) {
  // Taken for a simulated GPU's, a figure of the CPU would be too small by the scale.
  json experiment = two_models();
  experiment["exp_dur"] = 0.5;
  experiment["models"][0] = model("classifier", "cpu");
  experiment["models"][0]["batch_size"] = 1024;  // milliseconds, so that nothing else counts
  write_experiment(experiment);
  const base::Captured got = sluice_run();
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_NE(got.out.find("SIMULATED"), std::string::npos) << got.out;
  const auto cpu = rows("cpu");
  ASSERT_GT(cpu.size(), 1U);
  const Row& job = cpu.back();
  const double real_ms = static_cast<double>(job.end_ns - job.start_ns) / 1e6;
  EXPECT_GT(job.jct_ms, 0.8 * real_ms) << "the simulated GPU's scale here is 2";
  const double span_s = static_cast<double>(job.end_ns - cpu.at(1).start_ns) / 1e9;
  const double per_s = json::parse(read("logs/results.json"))["models"][0]["throughput_per_s"];
  const auto count = static_cast<double>(cpu.size() - 1);
  EXPECT_NEAR(per_s * span_s, count, 0.1 * count);
  EXPECT_GT(jobs("critical"), 0U);
  expect_nothing_left();
}

TEST_F(TorchRun, ExportsWhatTheStoreLacks) {
  write_models(json::array({model("bert_tiny", "text")}));
  const std::string store = folder_.file("store");
  const std::string command = "sluice models export bert_tiny --store " + store;
  const base::Captured refused = sluice_run({"--store", store});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("create it with: " + command), std::string::npos) << refused.err;
  const base::Captured got = sluice_run({"--store", store, "--export"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_NE(got.err.find(command), std::string::npos) << got.err;
  EXPECT_GT(jobs("text"), 0U);
  expect_nothing_left();
}

}  // namespace
}  // namespace sluice::runner
