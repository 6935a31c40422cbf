// `sluice exec --mps`: the life of a session's MPS daemon, with a stand-in for NVIDIA's programs.
// Prevents: a daemon, a server or a folder that is left behind, whatever part is killed and when; a
// daemon that ends under its programs; two daemons of one session.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>

#include "base/mps_session.hpp"
#include "shm/mapping.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;
using base::MpsProcess;
using Kind = MpsProcess::Kind;

class ExecMps : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    fs::create_symlink(SLUICE_TEST_FAKE_MPS, tools_.file("nvidia-cuda-mps-control"));
    path_ = "PATH=" + tools_.path().string() + ":" + std::getenv("PATH");
  }
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    CommandTest::TearDown();
  }

  [[nodiscard]] Args command(const Args& options, const Args& program) const {
    Args args{"exec", "--gpu", "sim", "--mps"};
    args.insert(args.end(), options.begin(), options.end());
    args.emplace_back("--");
    args.insert(args.end(), program.begin(), program.end());
    return sluice_command(args);
  }
  [[nodiscard]] std::unique_ptr<Process> start(const Args& options, const Args& program,
                                               Args environment = {}) const {
    environment.push_back(path_);
    return std::make_unique<Process>(command(options, program),
                                     ProcessOptions{.environment = std::move(environment)});
  }
  [[nodiscard]] base::Captured exec(const Args& options, const Args& program,
                                    Args environment = {}) const {
    return start(options, program, std::move(environment))->finish();
  }
  /// A program that has been started, and prints its pipe folder; ends with its standard input.
  [[nodiscard]] std::unique_ptr<Process> program(const Args& options = {"--priority", "1"},
                                                 const Args& environment = {}) const {
    return start(options, {"sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY; exec cat"}, environment);
  }

  [[nodiscard]] std::vector<pid_t> pids(Kind kind) const {
    std::vector<pid_t> found;
    for (const MpsProcess& process : base::mps_processes(folder_.path())) {
      if (process.kind == kind) found.push_back(process.pid);
    }
    return found;
  }
  [[nodiscard]] pid_t keeper() const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      const std::string line = read_file(entry.path() / "cmdline");
      const std::string options = std::string("sluice-mps") + '\0' + "--session" + '\0' + session_;
      if (pid > 0 && line.find(options) != std::string::npos) return pid;
    }
    return 0;
  }
  /// No daemon, no server, no keeper and no folder within some seconds.
  [[nodiscard]] bool nothing_left() const {
    return eventually(
        [&] {
          return base::mps_processes(folder_.path()).empty() && !folder_.exists() && keeper() == 0;
        },
        kProgramPatience);
  }

  TempFolder tools_;
  std::string path_;
  const base::MpsFolder folder_{session_};
};

TEST_F(ExecMps, TheFirstProgramStartsTheDaemonAndOthersJoinIt) {
  const auto first = program({"--priority", "1"});
  const std::string pipes = first->read_line();
  EXPECT_EQ(pipes, folder_.pipes(1));
  const auto second = program({"--priority", "0", "--sms", "50%"});
  EXPECT_EQ(second->read_line(), pipes);
  EXPECT_EQ(pids(Kind::kControl).size(), 1U);
  EXPECT_EQ(first->finish().err, "sluice exec: MPS of session " + session_ +
                                     ": a fatal fault of one of its programs ends the kernels of "
                                     "all\n");
  EXPECT_EQ(second->finish().err, "sluice exec: MPS of session " + session_ +
                                      ": a fatal fault of one of its programs ends the kernels of "
                                      "all; it has 50 % of the SMs\n");
}

}  // namespace
}  // namespace sluice::test
