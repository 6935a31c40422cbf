// The example program that users try `sluice exec` with.
#include <signal.h>

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

}  // namespace
}  // namespace sluice::test
