// A private MPS daemon, with a shell script in place of NVIDIA's program.
#include "base/mps_daemon.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/session.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::TempFolder;

class Mps : public testing::Test {
 protected:
  std::string script(const std::string& body) {
    const std::string path = folder_.write("nvidia-cuda-mps-control", "#!/bin/sh\n" + body);
    chmod(path.c_str(), 0755);
    return path;
  }
  /// A daemon that accepts clients, and records its arguments and its end.
  std::string daemon() {
    return script("echo \"$* $CUDA_MPS_LOG_DIRECTORY\" > " + folder_.file("called") +
                  "\ntrap 'echo ended >> " + folder_.file("called") +
                  "; exit' TERM\n: > \"$CUDA_MPS_PIPE_DIRECTORY/control\"\n"
                  "while :; do sleep 0.01; done\n");
  }
  std::string called() { return read_file(folder_.file("called")); }
  /// Whether the pipes of a run exist.
  static bool has_pipes(pid_t run) {
    return fs::exists(runtime_dir() + "/mps-" + std::to_string(run));
  }

  TempFolder folder_;
};

TEST_F(Mps, StartsInTheForegroundAndEndsWithTheObject) {
  const std::string logs = folder_.file("mps");
  {
    const MpsDaemon mps(daemon(), logs);
    EXPECT_EQ(called(), "-f " + logs + "\n");
    const auto normal = mps.environment(false);
    const auto below = mps.environment(true);
    EXPECT_EQ(normal[0].rfind("CUDA_MPS_PIPE_DIRECTORY=" + runtime_dir(), 0), 0U);
    EXPECT_EQ(normal[2], "CUDA_MPS_CLIENT_PRIORITY=0");
    EXPECT_EQ(below[2], "CUDA_MPS_CLIENT_PRIORITY=1");
  }
  EXPECT_EQ(called(), "-f " + logs + "\nended\n");
  EXPECT_FALSE(has_pipes(getpid())) << "pipes were left behind";
}

TEST_F(Mps, ClientsCountTheGpusThatTheDaemonSees) {
  const MpsDaemon mps(daemon(), folder_.file("mps"));
  const auto visible = [&](const char* ours) {
    setenv("CUDA_VISIBLE_DEVICES", ours, 1);
    const auto variables = mps.environment(false);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return variables.size() == 4 ? variables[3] : "";
  };
  EXPECT_EQ(visible("1"), "CUDA_VISIBLE_DEVICES=0") << "index 1 would be no GPU for a client";
  EXPECT_EQ(visible("5,2,7"), "CUDA_VISIBLE_DEVICES=0,1,2");
  EXPECT_EQ(visible("GPU-8f0e"), "") << "a UUID means the same GPU to both";
  EXPECT_EQ(visible(""), "");
  EXPECT_EQ(mps.environment(false).size(), 3U);
}

TEST_F(Mps, ADaemonThatCannotStartFailsWithItsLastLine) {
  const std::string program = script("echo 'an MPS daemon is running already'; exit 1\n");
  try {
    const MpsDaemon mps(program, folder_.file("mps"));
    FAIL();
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "the MPS daemon ended at once: an MPS daemon is running already");
  }
  EXPECT_FALSE(has_pipes(getpid()));
}

TEST_F(Mps, ARunThatIsKilledTakesItsDaemonAlongAndTheNextOneCleansUp) {
  const std::string program = daemon();
  test::ForkedChild run([&] {
    const MpsDaemon mps(program, folder_.file("mps"));
    return raise(SIGKILL);
  });
  EXPECT_EQ(run.wait(test::kProgramPatience), 128 + SIGKILL);
  EXPECT_TRUE(test::eventually([&] { return called().find("ended") != std::string::npos; },
                               test::kProgramPatience));
  EXPECT_TRUE(has_pipes(run.pid()));
  { const MpsDaemon next(program, folder_.file("mps")); }
  EXPECT_FALSE(has_pipes(run.pid()));
}

TEST_F(Mps, WithoutNvidiasProgramIsAUsageError) {
  const std::string before = std::getenv("PATH");
  setenv("PATH", folder_.path().c_str(), 1);
  EXPECT_THROW(static_cast<void>(find_mps_control()), UsageError);
  const std::string program = script("exit 0\n");
  EXPECT_EQ(find_mps_control(), program);
  setenv("PATH", before.c_str(), 1);
}

}  // namespace
}  // namespace sluice::base
