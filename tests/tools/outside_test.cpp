// Processes on the GPU that Sluice does not hold, as `sluice status` and `sluice top` name them.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

using nlohmann::json;

class OutsideCommand : public CommandTest {
 protected:
  /// A program on the simulated GPU. It has a context when the constructor returns.
  struct OnGpu : Process {
    explicit OnGpu(std::vector<std::string> options) : Process(command(std::move(options))) {
      EXPECT_EQ(read_line(), "ok");
    }
    static std::vector<std::string> command(std::vector<std::string> options) {
      options.insert(options.begin(), {"exec", "--gpu", "sim"});
      options.insert(options.end(), {"--", SLUICE_TEST_CLIENT});
      return sluice_command(options);
    }
    void launch() {
      write_line("launch 1000");
      EXPECT_EQ(read_line(), "ok");
    }
  };
};

// Prevents: the one program that makes all policies worthless, unseen.
TEST_F(OutsideCommand, ProgramsWithoutASlotAreNamed) {
  OnGpu client({"--priority", "0"});
  client.launch();
  EXPECT_EQ(json::parse(sluice({"status", "--json"}).out)["outside"], json::array());
  OnGpu bare({"--no-intercept"});
  OnGpu waiting({"--priority", "0"});  // has launched nothing yet
  const base::Captured status = sluice({"status"});
  EXPECT_EQ(status.exit_code, 0);
  const std::string name = "pid " + std::to_string(bare.pid()) + " (sluice_gpu_client)";
  EXPECT_NE(status.out.find("not under Sluice: " + name), std::string::npos) << status.out;
  EXPECT_NE(status.out.find("without a slot here: pid " + std::to_string(waiting.pid())),
            std::string::npos)
      << status.out;
  const base::Captured top = sluice({"top", "--interval", "0.1"});
  EXPECT_NE(top.out.find("not under Sluice: " + name), std::string::npos) << top.out;
  EXPECT_EQ(bare.finish().exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0);
  EXPECT_EQ(json::parse(sluice({"status", "--json"}).out)["outside"], json::array());
  EXPECT_EQ(client.finish().exit_code, 0);
}

}  // namespace
}  // namespace sluice::test
