// `sluice exec --mps`: the life of a session's MPS daemon, with a stand-in for NVIDIA's programs.
// Prevents: a daemon, a server or a folder that is left behind, whatever part is killed and when; a
// daemon that ends under its programs; two daemons of one session.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "base/mps_session.hpp"
#include "base/processes.hpp"
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
    for (const char* name : {"SLUICE_MPS", "SLUICE_SMS", "CUDA_MPS_PIPE_DIRECTORY",
                             "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}) {
      unsetenv(name);
    }
    path_ = "PATH=" + tools_.path().string() + ":" + std::getenv("PATH");
  }
  void TearDown() override {
    // It would wait for a client for three seconds.
    if (const pid_t pid = controller_pid(); pid > 0) kill(pid, SIGTERM);
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
    return without_lines_of_others(start(options, program, std::move(environment))->finish());
  }
  /// A program that has been started, and prints its pipe folder; ends with its standard input.
  [[nodiscard]] std::unique_ptr<Process> program(const Args& options = {"--priority", "1"},
                                                 const Args& environment = {}) const {
    return start(options, {"sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY; exec cat"}, environment);
  }

  /// The result without what is said of the container, and of the daemons of other tests.
  [[nodiscard]] static base::Captured without_lines_of_others(base::Captured result) {
    result = without_container_line(std::move(result));
    const std::size_t line = result.err.find("sluice exec: another MPS daemon runs");
    if (line != std::string::npos) result.err.erase(line, result.err.find('\n', line) + 1 - line);
    return result;
  }

  /// The line of exec, up to the width.
  [[nodiscard]] std::string line_of(const std::string& width) const {
    return "sluice exec: MPS of session " + session_ +
           ": a fatal fault of one of its programs ends the kernels of all" + width + "\n";
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
      const std::string line = base::read_proc(pid, "cmdline", 4096);
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
  EXPECT_EQ(without_lines_of_others(first->finish()).err, line_of(""));
  EXPECT_EQ(without_lines_of_others(second->finish()).err,
            line_of("; it asks for 50 % of the SMs, but the driver takes it for no client of MPS"))
      << "the stand-in is no MPS";
}

TEST_F(ExecMps, SetsPriorityAndWidthByThePriorityOfTheProgram) {
  const auto variable = [&](const Args& options, const Args& environment = {}) {
    return exec(options,
                {"sh", "-c",
                 "echo $CUDA_MPS_CLIENT_PRIORITY ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-all}"},
                environment)
        .out;
  };
  EXPECT_EQ(variable({"--priority", "1"}), "0 all\n");
  EXPECT_EQ(variable({"--priority", "0", "--sms", "25%"}), "1 25\n");
  EXPECT_EQ(variable({"--priority", "0", "--sms", "all"}), "1 all\n");
  EXPECT_EQ(variable({"--priority", "0"}), "1 all\n");
  EXPECT_EQ(variable({"--priority", "0"}, {"SLUICE_SMS=12%"}), "1 12\n");
  EXPECT_EQ(variable({"--no-intercept"}), "0 all\n");
  // What the user has set stays, unless --sms says another.
  EXPECT_EQ(variable({"--priority", "0"}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"}), "1 30\n");
  EXPECT_EQ(variable({"--priority", "0", "--sms", "all"}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"}),
            "1 all\n");
  // The simulated GPU says how many SMs it has.
  EXPECT_EQ(variable({"--priority", "0", "--sms", "66"}), "1 50\n");
  EXPECT_EQ(variable({"--priority", "0", "--sms", "132"}), "1 all\n");
}

// NVIDIA's daemon ends its server at SIGTERM, and does not always at SIGKILL.
TEST_F(ExecMps, TheDaemonIsAskedToEnd) {
  const std::string ended = tools_.file("ended");
  EXPECT_EQ(exec({"--no-intercept"}, {"true"}, {"FAKE_MPS_ENDED=" + ended}).exit_code, 0);
  EXPECT_TRUE(nothing_left());
  EXPECT_TRUE(fs::exists(ended));
}

// What limits the first program must not limit those that join later.
TEST_F(ExecMps, TheDaemonHasNothingOfItsFirstProgram) {
  const auto first = program(
      {"--priority", "0"},
      {"CUDA_VISIBLE_DEVICES=1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "LD_PRELOAD=libm.so.6"});
  first->read_line();
  const std::string environment =
      read_file("/proc/" + std::to_string(pids(Kind::kControl).at(0)) + "/environ");
  EXPECT_NE(environment.find("CUDA_MPS_LOG_DIRECTORY="), std::string::npos);
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE", "LD_PRELOAD"}) {
    EXPECT_EQ(environment.find(name), std::string::npos) << name;
  }
}

TEST_F(ExecMps, AutoSaysWhyItTakesAll) {
  EXPECT_EQ(exec({"--priority", "0"}, {"true"}).err,
            line_of("; it has all SMs: no program is above it (--sms auto)"));
}

TEST_F(ExecMps, AProgramOfAProgramJoinsWithItsOwnPriorityAndWidth) {
  const std::string nested = std::string("echo $CUDA_MPS_CLIENT_PRIORITY;") + SLUICE_TEST_PROGRAM +
                             " exec --gpu sim --priority 1 -- sh -c 'echo $CUDA_MPS_PIPE_DIRECTORY "
                             "$CUDA_MPS_CLIENT_PRIORITY ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-all}'";
  const base::Captured result =
      exec({"--priority", "0", "--sms", "25%"}, {"sh", "-c", nested.c_str()});
  EXPECT_EQ(result.out, "1\n" + folder_.pipes(1) + " 0 all\n");
}

TEST_F(ExecMps, ManyAtOnceHaveOneDaemon) {
  std::vector<std::unique_ptr<Process>> programs;
  for (int i = 0; i < 6; ++i) {
    programs.push_back(program({"--priority", i % 2 == 0 ? "1" : "0"}, {"FAKE_MPS=slow"}));
  }
  for (const auto& each : programs) EXPECT_EQ(each->read_line(), folder_.pipes(1));
  EXPECT_EQ(pids(Kind::kControl).size(), 1U);
  EXPECT_EQ(pids(Kind::kServer).size(), 1U);
}

// The daemon lives for a child that outlives the program, too.
TEST_F(ExecMps, ADaemonOutlivesTheControllerWhileAnyProgramLives) {
  const auto first = program();
  const std::string pipes = first->read_line();
  const auto child =
      start({"--priority", "0"}, {"sh", "-c", "exec 3<&0; (echo child; exec cat <&3) & exit"});
  EXPECT_EQ(child->read_line(), "child");
  const std::vector<pid_t> daemon = pids(Kind::kControl);
  kill(controller_pid(), SIGKILL);
  first->finish();
  // Two looks of the keeper and more.
  const pid_t looked = keeper();
  EXPECT_FALSE(
      eventually([&] { return pids(Kind::kControl) != daemon || keeper() != looked; }, 1s));
  child->finish();
  EXPECT_TRUE(nothing_left());
  // A controller that removes what the killed one has left.
  EXPECT_EQ(exec({"--priority", "1"}, {"true"}).exit_code, 0);
}

TEST_F(ExecMps, AKilledKeeperIsReplacedByTheController) {
  const auto first = program();
  first->read_line();
  const std::vector<pid_t> daemon = pids(Kind::kControl);
  const pid_t killed = keeper();
  ASSERT_GT(killed, 0);
  kill(killed, SIGKILL);
  EXPECT_TRUE(eventually([&] { return keeper() != 0 && keeper() != killed; }, kProgramPatience));
  EXPECT_EQ(pids(Kind::kControl), daemon);
}

TEST_F(ExecMps, AKilledKeeperIsReplacedByAControllerThatEnds) {
  const auto first = program();
  first->read_line();
  kill(keeper(), SIGKILL);
  first->finish();
  kill(controller_pid(), SIGTERM);
  EXPECT_TRUE(nothing_left());
}

TEST_F(ExecMps, TheNextProgramAdoptsWhatIsThere) {
  const auto first = program();
  first->read_line();
  const std::vector<pid_t> daemon = pids(Kind::kControl);
  kill(controller_pid(), SIGKILL);
  // The controller may have started a second one, which takes over from the first.
  EXPECT_TRUE(eventually([&] {
    const pid_t found = keeper();
    if (found != 0) kill(found, SIGKILL);
    return found == 0;
  }));
  EXPECT_EQ(pids(Kind::kControl), daemon);
  const auto second = program({"--priority", "0"});
  EXPECT_EQ(second->read_line(), folder_.pipes(1));
  EXPECT_EQ(pids(Kind::kControl), daemon);
  EXPECT_GT(keeper(), 0);
}

TEST_F(ExecMps, AKilledDaemonIsReplacedAndItsProgramsAreNamed) {
  const auto first = program();
  first->read_line();
  kill(pids(Kind::kControl).at(0), SIGKILL);
  EXPECT_TRUE(eventually([&] { return pids(Kind::kControl).empty(); }));
  const std::vector<pid_t> server = pids(Kind::kServer);
  const auto second = program();
  EXPECT_EQ(second->read_line(), folder_.pipes(2));
  EXPECT_EQ(pids(Kind::kServer).size(), 2U);
  const pid_t old = first->pid();
  first->finish();
  // Nobody uses the server of the killed daemon any more.
  EXPECT_TRUE(eventually(
      [&] {
        return pids(Kind::kServer).size() == 1 && !pids(Kind::kServer).empty() &&
               pids(Kind::kServer) != server;
      },
      kProgramPatience));
  EXPECT_TRUE(eventually([&] { return !fs::exists(folder_.pipes(1)); }));
  const std::string said = second->finish().err;
  EXPECT_NE(said.find("was killed, and this program has a new one: pid " + std::to_string(old)),
            std::string::npos)
      << said;
}

TEST_F(ExecMps, TheServerOfAKilledDaemonEndsWithTheLastProgram) {
  const auto first = program();
  first->read_line();
  kill(pids(Kind::kControl).at(0), SIGKILL);
  first->finish();
  EXPECT_TRUE(eventually([&] { return pids(Kind::kServer).empty() && !folder_.exists(); },
                         kProgramPatience));
  EXPECT_GT(controller_pid(), 0);
}

// A keeper that was killed holds its right until the kernel has removed it.
TEST_F(ExecMps, AKeeperThatIsAboutToDieIsReplacedByAControllerThatEnds) {
  const auto first = program();
  first->read_line();
  const pid_t dying = keeper();
  kill(dying, SIGSTOP);
  first->finish();
  const pid_t controller = controller_pid();
  kill(controller, SIGTERM);
  EXPECT_TRUE(eventually([&] { return kill(controller, 0) != 0; }, kProgramPatience));
  kill(dying, SIGKILL);
  EXPECT_TRUE(nothing_left());
}

// The property: whatever is killed, and whenever, no program loses its daemon to it, and nothing is
// left at the end.
TEST_F(ExecMps, AnyPartMayBeKilledAtAnyInstant) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto drawn = [&](int most) { return static_cast<int>(random() % (most + 1)); };
  std::vector<std::unique_ptr<Process>> programs;
  for (int round = 0; round < 12; ++round) {
    programs.push_back(program({"--priority", "1"}, {"FAKE_MPS=slow"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(drawn(400)));
    const std::vector<pid_t> daemons = pids(Kind::kControl);
    const int victim = drawn(3);
    const pid_t pid = victim == 0        ? programs.back()->pid()
                      : victim == 1      ? keeper()
                      : victim == 2      ? controller_pid()
                      : !daemons.empty() ? daemons.back()
                                         : 0;
    if (pid > 0) kill(pid, SIGKILL);
    if (victim != 3) {
      for (const pid_t daemon : daemons) {
        EXPECT_EQ(kill(daemon, 0), 0) << "killing " << victim << " ended a daemon, round " << round;
      }
    }
    if (drawn(2) == 0)
      programs.erase(programs.begin() + drawn(static_cast<int>(programs.size()) - 1));
  }
  programs.clear();
  // The last command of the session finds what killed keepers and controllers have left.
  EXPECT_EQ(exec({"--priority", "1"}, {"true"}).exit_code, 0);
}

TEST_F(ExecMps, WhatCannotBeIsOneLineAndStartsNothing) {
  const auto fails = [&](const Args& options, const Args& environment, int code,
                         const std::string& with) {
    const base::Captured result = exec(options, {"echo", "started"}, environment);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lines_in(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(with), std::string::npos) << result.err;
    EXPECT_EQ(controller_pid(), 0);
  };
  for (const char* width : {"0", "0%", "101%", "half", "-1", "3.5%", ""}) {
    fails({"--priority", "0", std::string("--sms=") + width}, {}, 2, "--sms");
  }
  fails({"--priority", "0", "--sms", "133"}, {}, 2, "--sms 133: the GPU has 132 SMs");
  fails({"--priority", "1"}, {"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"}, 2,
        "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps names another MPS daemon");
  fails({"--priority", "1"}, {"FAKE_MPS=refuse"}, 1,
        "the MPS daemon ended at once: An instance of this daemon is already running");
  path_ = "PATH=/usr/bin:/bin";
  fails({"--priority", "1"}, {}, 2,
        "nvidia-cuda-mps-control, a part of the NVIDIA driver, is not in");
}

TEST_F(ExecMps, AWidthNeedsMps) {
  for (const Args& environment : {Args{}, Args{"SLUICE_SMS=50%"}}) {
    Args args{"exec", "--priority", "0"};
    if (environment.empty()) args.insert(args.end(), {"--sms", "50%"});
    args.insert(args.end(), {"--", "echo", "started"});
    const base::Captured result =
        Process(sluice_command(args), {.environment = environment}).finish();
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, "sluice exec: --sms is a width under MPS: it needs --mps\n");
  }
}

// exec may be killed when its daemon has begun to become nvidia-cuda-mps-control: the kernel has
// closed the lock of the folder by then, and shows no environment yet.
TEST_F(ExecMps, WhatIsAboutToBecomeTheDaemonIsWaitedFor) {
  base::Fd held;
  {
    const base::Fd lock = folder_.lock(true);
    fs::create_directory(folder_.pipes(1));
    held = folder_.hold(1);
  }
  const auto first = start({"--no-intercept"}, {"true"});  // starts a keeper
  first->finish();
  EXPECT_FALSE(eventually([&] { return !fs::exists(folder_.pipes(1)); }, 1s));
  held.reset();
}

// As a clean-up of /dev/shm does it.
TEST_F(ExecMps, ADaemonWhoseFolderIsRemovedEndsAllTheSame) {
  const auto first = program();
  first->read_line();
  const std::vector<pid_t> daemon = pids(Kind::kControl);
  fs::remove_all(folder_.path());
  const auto second = program();
  EXPECT_EQ(second->read_line(), folder_.pipes(2));
  EXPECT_EQ(kill(daemon.at(0), 0), 0) << "its program lives";
  first->finish();
  EXPECT_TRUE(eventually([&] { return pids(Kind::kControl).size() == 1; }, kProgramPatience));
}

TEST_F(ExecMps, AKeeperWhoseFolderIsRemovedStaysUntilTheDaemonEnds) {
  const auto first = program();
  first->read_line();
  fs::remove_all(folder_.path());
  EXPECT_TRUE(eventually([&] { return folder_.exists(); })) << "the keeper has a folder again";
  first->finish();
}

TEST_F(ExecMps, TheDaemonOfAnotherPidNamespaceIsNotJoined) {
  {
    const base::Fd lock = folder_.lock(true);
    std::ofstream(folder_.path() + "/namespace") << "pid:[1]\n";
  }
  {
    const base::Fd keeper = folder_.become_keeper();
    const base::Captured result = exec({"--priority", "1"}, {"true"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("is of another container"), std::string::npos) << result.err;
  }
  EXPECT_EQ(exec({"--priority", "1"}, {"true"}).exit_code, 0) << "nobody is left there";
}

// Prevents: a container removes the folder of a daemon that lives in another one, where it has lost
// its keeper.
TEST_F(ExecMps, ALivingDaemonOfAnotherNamespaceKeepsItsFolder) {
  base::Fd held;
  {
    const base::Fd lock = folder_.lock(true);
    std::ofstream(folder_.path() + "/namespace") << "pid:[1] user:[1]\n";
    fs::create_directory(folder_.pipes(1));
    held = folder_.hold(1);
  }
  EXPECT_EQ(exec({"--priority", "1"}, {"true"}).exit_code, 1);
  EXPECT_TRUE(fs::exists(folder_.pipes(1)));
  held.reset();
  EXPECT_EQ(exec({"--priority", "1"}, {"true"}).exit_code, 0) << "nobody is left there";
}

// Prevents: the keeper of a container that shares the pids, but not /dev/shm, ends the daemon of
// the machine, which has the same path.
TEST_F(ExecMps, ADaemonInAnotherFolderOfThisNameIsAnother) {
  const auto first = program();
  first->read_line();
  const std::vector<pid_t> daemon = pids(Kind::kControl);
  ASSERT_EQ(daemon.size(), 1U);
  std::string apart = "mount -t tmpfs none /dev/shm 2>/dev/null || exit 77; export " + path_ + ";";
  for (const std::string& word : command({"--priority", "1"}, {"sleep", "2"})) {
    apart += " '" + word + "'";
  }
  Process other({"/usr/bin/unshare", "-m", "/bin/sh", "-c", apart});
  const base::Captured result = other.finish();
  if (result.exit_code == 77 || result.err.find("unshare") != std::string::npos) {
    first->finish();
    GTEST_SKIP() << "no mount namespace here: " << result.err;
  }
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err.find("was killed"), std::string::npos) << result.err;
  EXPECT_EQ(pids(Kind::kControl), daemon);
  first->finish();
}

// Prevents: best effort that comes first leaves its limits to the daemon of a critical program.
TEST_F(ExecMps, TheDaemonHasNoLimitsOfItsFirstProgram) {
  Args limited{"/bin/sh", "-c", "ulimit -S -n 64; ulimit -S -v 8000000; exec nice -n 7 \"$@\"",
               "sh"};
  for (const std::string& word : command({"--priority", "0"}, {"cat"})) limited.push_back(word);
  Process first(limited, ProcessOptions{.environment = {path_}});
  std::vector<pid_t> daemon;
  ASSERT_TRUE(eventually([&] { return !(daemon = pids(Kind::kControl)).empty(); }))
      << first.finish().err;
  const std::string limits = read_file("/proc/" + std::to_string(daemon[0]) + "/limits");
  EXPECT_NE(limits.find("Max address space         unlimited"), std::string::npos) << limits;
  EXPECT_EQ(limits.find("Max open files            64 "), std::string::npos) << limits;
  EXPECT_TRUE(geteuid() != 0 || getpriority(PRIO_PROCESS, static_cast<id_t>(daemon[0])) == 0);
  first.finish();
}

// A note of a process that has ended must not stand for a later process with its pid.
TEST_F(ExecMps, AnotherProcessWithThePidOfAUserIsNoUser) {
  const base::Fd lock = folder_.lock(true);
  folder_.note_user(1);
  EXPECT_EQ(folder_.noted_users(1), std::vector<pid_t>{getpid()});
  EXPECT_TRUE(folder_.noted_users(2).empty());
  const std::string note = folder_.path() + "/2.user." + std::to_string(getpid()) + "." +
                           std::to_string(base::start_time_of(getpid()) + 1);
  std::ofstream(note).put(' ');
  EXPECT_TRUE(folder_.noted_users(2).empty());
  EXPECT_FALSE(fs::exists(note));
  // A signal for the process that had the pid before.
  base::signal_process({getpid(), base::start_time_of(getpid()) + 1, Kind::kControl, ""}, SIGKILL);
  folder_.remove_all();
}

}  // namespace
}  // namespace sluice::test
