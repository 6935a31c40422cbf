// The example program that users try `sluice exec` with.
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

class Spin : public CommandTest {
 protected:
  static base::Captured spin(std::vector<std::string> options) {
    std::vector<std::string> args{
        "exec", "--gpu", "sim", "--priority", "1", "--", "sluice-example-spin"};
    args.insert(args.end(), options.begin(), options.end());
    return sluice(args);
  }
};

TEST_F(Spin, RunsJobsAndSaysHowFast) {
  const base::Captured result = spin({"--jobs", "5", "--kernels", "3", "--kernel-us", "100"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("5 jobs in ")) << result.out;
  const std::size_t at = result.out.find("p50 ");
  ASSERT_NE(at, std::string::npos) << result.out;
  EXPECT_GE(std::stod(result.out.substr(at + 4)), 0.3) << "in the time of the GPU: " << result.out;
}

TEST_F(Spin, AnnouncesAndEndsOnASignalWithItsFigures) {
  Process process(
      sluice_command({"exec", "--gpu", "sim", "--priority", "1", "--", "sluice-example-spin",
                      "--kernels", "2", "--announce-ms", "1", "--period-ms", "5", "--poisson"}));
  nlohmann::json client;
  EXPECT_TRUE(eventually([&] {
    auto status = nlohmann::json::parse(sluice({"status", "--json"}).out, nullptr, false);
    if (status.is_object() && !status["clients"].empty()) client = status["clients"][0];
    return client.is_object() && client["launches"] > 6;
  })) << client;
  EXPECT_EQ(client["name"], "sluice-example-spin") << client;
  kill(process.pid(), SIGTERM);
  const base::Captured result = process.finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(" jobs/s, p50 "), std::string::npos) << result.out;
}

// Prevents: next to a program that is never idle, best effort gets nothing, on the whole way from
// the hooks to `sluice status`.
TEST_F(Spin, WithStepsInFlightLeavesWindowsToOthers) {
  const auto start = [](const char* priority, std::vector<std::string> options) {
    std::vector<std::string> args{"exec",   "--gpu",  "sim", "--priority",         priority,
                                  "--name", priority, "--",  "sluice-example-spin"};
    args.insert(args.end(), options.begin(), options.end());
    return std::make_unique<Process>(sluice_command(args));
  };
  const auto server = start("1", {"--kernels", "40", "--kernel-us", "100", "--in-flight", "2"});
  const auto others = start("0", {"--kernels", "5", "--kernel-us", "100"});
  nlohmann::json steps;
  std::uint64_t jobs = 0;
  std::uint64_t jobs_at_first_window = 0;
  const auto look = [&] {
    const auto status = nlohmann::json::parse(sluice({"status", "--json"}).out, nullptr, false);
    if (!status.is_object() || !status["clients"].is_array()) return;  // no session yet
    for (const auto& client : status["clients"]) {
      if (client["name"] == "1") steps = client["steps"];
      if (client["name"] == "0") jobs = client["jobs"];
    }
    const bool opened = steps.is_object() && steps["windows"] > 0;
    if (opened && jobs_at_first_window == 0) jobs_at_first_window = jobs + 1;
  };
  const auto share = [&] {
    look();
    return steps.is_object() && steps["windows"] > 5 && jobs > jobs_at_first_window + 3;
  };
  // A busy host pauses the server now and then, which is a job that ends: its steps begin anew.
  EXPECT_TRUE(eventually(share, std::chrono::seconds(60))) << steps << jobs;
  // On a busy host the server seems to wait for little, and is asked whether its gates may stay
  // open.
  EXPECT_TRUE(steps["state"] == "windows" || steps["state"] == "trying") << steps["state"];
  EXPECT_GT(steps["kinds"][0]["p50_ns"], 10'000'000) << "4 ms of GPU time";
  kill(server->pid(), SIGTERM);
  kill(others->pid(), SIGTERM);
  const base::Captured result = server->finish();
  EXPECT_NE(result.out.find(" steps/s, p50 "), std::string::npos) << result.out << result.err;
  others->finish();
}

}  // namespace
}  // namespace sluice::test
