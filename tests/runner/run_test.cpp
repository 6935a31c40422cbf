// Whole runs of `sluice run`: worker processes with the interposer, the board and the controller,
// on the simulated GPU.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <regex>
#include <set>

#include "base/fd.hpp"
#include "runner/run/output_folders.hpp"
#include "shm/board.hpp"
#include "shm/messages.hpp"
#include "shm/session.hpp"
#include "shm/trace_format.hpp"
#include "tests/runner/run_fixture.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/look.hpp"
#include "tests/support/session.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;
using test::RunTest;

/// Gives this process and its children an empty /dev/shm, so that its session `default` is its own.
bool leave_dev_shm() {
  const std::string user = std::to_string(geteuid());
  const std::string group = std::to_string(getegid());
  const bool root = geteuid() == 0;
  if (unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (!root) {
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << user + " " + user + " 1";
    std::ofstream("/proc/self/gid_map") << group + " " + group + " 1";
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0;
}

TEST_F(RunTest, LeavesLogsPidsAndResultsAndNothingElse) {
  write_experiment(two_models());
  ASSERT_EQ(run("sluice-run", {"exp.json", "--gpu", "sim"}).exit_code, 0) << read("stderr.txt");

  const json results = json::parse(read("logs/results.json"));
  EXPECT_EQ(results["simulated"], true);
  EXPECT_EQ(results["time_scale"], 2);
  EXPECT_EQ(results["stopped_by"], "time");
  for (const json& model : results["models"]) EXPECT_GT(model["jobs"], 0) << model;
  EXPECT_EQ(results["models"][1]["jobs"], jobs("critical"));
  EXPECT_EQ(worker_pids(), (std::vector<pid_t>{results["models"][0]["pid"].get<pid_t>(),
                                               results["models"][1]["pid"].get<pid_t>()}));
  EXPECT_EQ(results["models"][0]["pid"], json::parse(read("logs/models_pid.json"))[0][1]);
  // Prevents: unexpected files in the working directory.
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{"exp.json", "logs", "stderr.txt", "stdout.txt"}));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "logs/run.lock"));
  EXPECT_TRUE(std::regex_search(
      read("logs/critical.log"),
      std::regex("\n\\d{16} kernelGroupStart\n\n\\d{16} kernelGroupEnd\n\nJCT \\d{19} 1 ")));

  // The output names the GPU and has the counters of the workers.
  const std::string out = read("stdout.txt");
  EXPECT_NE(out.find("SIMULATED"), std::string::npos) << out;
  EXPECT_NE(out.find("cuGraphLaunch"), std::string::npos) << out;

  EXPECT_EQ(test::files_of_session(results["session"]), std::vector<std::string>{})
      << "a run ends after its session";
  expect_nothing_left();
}

// Prevents: all results are lost at the end of a run, because the name of its file is not UTF-8.
TEST_F(RunTest, KeepsItsResultsWhateverTheNameOfTheFile) {
  write_experiment(two_models());
  std::filesystem::rename(folder_.file("exp.json"), folder_.file("\xff.json"));
  EXPECT_EQ(run("sluice-run", {"\xff.json", "--gpu", "sim"}).exit_code, 0) << read("stderr.txt");
  EXPECT_EQ(json::parse(read("logs/results.json"))["configuration"], "\ufffd.json");
}

// Prevents: a run in the session of somebody else waits for the end of that session, and complains
// that it goes on.
TEST_F(RunTest, LeavesASessionThatIsNotItsOwn) {
  const test::Session session("test-not-own");
  const auto controller = test::start_controller(session);
  write_experiment(two_models());
  const base::Captured got = run(
      "sluice-run", {"exp.json", "--gpu", "sim", "--duration", "0.3", "--session", session.name()});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.err.find("still exists"), std::string::npos) << got.err;
  EXPECT_EQ(json::parse(read("logs/results.json"))["session"], session.name());
  EXPECT_EQ(session.controller_pid(), controller->pid());
  unsetenv("SLUICE_SESSION");  // of the other tests, where they run in this process
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

TEST_F(RunTest, StatusSeesBothClientsHooked) {
  json experiment = two_models();
  experiment["models"][1]["target"] = "p99=50ms";
  write_experiment(experiment);
  ASSERT_EQ(run("sluice-run", {"exp.json", "--gpu", "sim"}).exit_code, 0) << read("stderr.txt");
  const json status = json::parse(read("logs/status.json"));
  ASSERT_EQ(status["clients"].size(), 2U) << status;
  for (const json& client : status["clients"]) {
    EXPECT_EQ(client["policy"], "device:4");
    EXPECT_EQ(client["bypassed"], 0) << client;
    // Prevents: users cannot tell workers apart, or name one to `sluice set`.
    const std::string model = client["priority"] == 0 ? "best_effort" : "critical";
    EXPECT_NE(client["command"].get<std::string>().find(model), std::string::npos) << client;
    EXPECT_EQ(client["name"], model);
    // A target is in the GPU's time, like every time of an experiment: here twice as slow.
    if (model == "critical") {
      EXPECT_EQ(client["target"]["target"], "p99=100ms");
    } else {
      EXPECT_TRUE(client["target"].is_null()) << client;
    }
  }
  // Prevents: the results judge jobs in GPU time by a limit in real time.
  const json results = json::parse(read("logs/results.json"));
  EXPECT_TRUE(results["models"][0]["target"].is_null());
  EXPECT_EQ(results["models"][1]["target"]["target"], "p99=50ms");
  EXPECT_DOUBLE_EQ(results["models"][1]["target"]["limit_ms"], 50);
  EXPECT_NE(read("stdout.txt").find("\n  target p99=50ms: "), std::string::npos);
}

TEST_F(RunTest, TraceHasEveryLaunchOfEveryWorker) {
  write_experiment(two_models());
  ASSERT_EQ(run("sluice-run", {"exp.json", "--gpu", "sim", "--trace"}).exit_code, 0)
      << read("stderr.txt");
  const json status = json::parse(read("logs/status.json"));
  for (const json& client : status["clients"]) {
    const std::string bytes =
        read("logs/trace/" + std::to_string(client["pid"].get<pid_t>()) + ".sltrace");
    ASSERT_GT(bytes.size(), shm::kTraceHeaderSize);
    const std::string name = bytes.substr(offsetof(shm::TraceHeader, name), shm::kNameSize);
    EXPECT_EQ(name.c_str(), client["name"].get<std::string>());
    std::uint64_t launches = 0;
    for (std::size_t at = shm::kTraceHeaderSize; at < bytes.size();
         at += sizeof(shm::TraceRecord)) {
      std::uint16_t kind = 0;
      std::memcpy(&kind, bytes.data() + at, sizeof(kind));
      launches += kind == static_cast<std::uint16_t>(shm::TraceKind::kLaunch) ? 1 : 0;
    }
    // The status was read shortly before the worker was killed. A captured launch is not a launch.
    // A launch is counted before the driver's call and recorded after it: the worker's one thread
    // may have been killed in between.
    std::uint64_t gated = 0;
    for (const json& entry : client["coverage"]) gated += entry["gated"].get<std::uint64_t>();
    EXPECT_GE(launches + 1, gated);
    EXPECT_GT(gated, 0U);
  }
  // Kernels carry their recorded names, launched one by one (best_effort) and in a graph.
  const std::string gpu_log = read("logs/trace/gpu.log");
  for (const pid_t pid : worker_pids()) {
    EXPECT_TRUE(std::regex_search(
        gpu_log, std::regex("kernel " + std::to_string(pid) +
                            "[ \\d]+ sluice_spin_void_at_native_anonymous_namespace_"
                            "max_pool_forward_nch\n")));
  }
  EXPECT_EQ(gpu_log.find(" sluice_spin\n"), std::string::npos);
  // A run without --trace removes the trace of an earlier run.
  ASSERT_EQ(run("sluice-run", {"exp.json", "--gpu", "sim", "--duration", "0.3"}).exit_code, 0);
  EXPECT_EQ(read("logs/trace/gpu.log"), "");
}

TEST_F(RunTest, UnhookedModelsRunWithoutAController) {
  json experiment = two_models();
  for (json& model : experiment["models"]) model["control"] = {{"control", false}};
  write_experiment(experiment);
  const base::Captured got = run("sluice-run", {"exp.json", "--gpu", "sim", "--trace"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.out.find("controller"), std::string::npos) << got.out;
  // The commands for a trace would find none.
  EXPECT_NE(got.out.find("no trace: no model"), std::string::npos) << got.out;
  EXPECT_EQ(got.out.find("sluice trace"), std::string::npos) << got.out;
  EXPECT_EQ(read("logs/critical.log").find("kernelGroup"), std::string::npos);
  EXPECT_GT(jobs("critical"), 0U);
  expect_nothing_left();
}

// Prevents: a run and the programs that a user started under a controller are in different
// sessions, where priorities have no effect between them.
TEST_F(RunTest, JoinsTheDefaultSessionIfItHasAController) {
  // Other tests run at the same time, and their runs would join this controller too.
  if (!leave_dev_shm()) GTEST_SKIP() << "may not make a mount namespace";
  const std::string session(base::kDefaultSession);
  write_experiment(two_models());
  const auto controller = start("sluice-controller", {});
  const auto answers = [&] {
    return base::Fd(shm::connect_controller(shm::socket_path(session).c_str())).get() >= 0;
  };
  ASSERT_TRUE(test::eventually(answers, test::kProgramPatience));
  const base::Captured got = run("sluice-run", {"exp.json", "--gpu", "sim"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(json::parse(read("logs/results.json"))["session"], session);
  EXPECT_EQ(json::parse(read("logs/status.json"))["clients"].size(), 2U);
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
  expect_nothing_left();
}

TEST_F(RunTest, TheSessionVariableNamesTheSession) {
  const std::string session = "test-variable-" + std::to_string(getpid());
  write_experiment(two_models());
  setenv("SLUICE_SESSION", session.c_str(), 1);
  EXPECT_EQ(run("sluice-run", {"exp.json", "--gpu", "sim"}).exit_code, 0) << read("stderr.txt");
  EXPECT_EQ(json::parse(read("logs/results.json"))["session"], session);
  setenv("SLUICE_SESSION", "a/b", 1);
  EXPECT_EQ(run("sluice-run", {"exp.json", "--gpu", "sim"}).exit_code, 2);
  EXPECT_NE(read("stderr.txt").find("SLUICE_SESSION: 'a/b'"), std::string::npos);
  unsetenv("SLUICE_SESSION");
}

TEST_F(RunTest, OptionsOverrideTheFile) {
  json experiment = two_models();
  experiment["exp_dur"] = 3000;
  experiment["device_id"] = 7;
  write_experiment(experiment);
  const base::Captured got = run("sluice-run", {"-f", "exp.json", "--gpu", "sim", "--device", "0",
                                                "--duration", "0.5", "--out", "elsewhere"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_NE(read("elsewhere/critical.log").find("\nJCT "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "logs"));
}

// Prevents: a run fails because the working directory is not writable, although no file goes there.
TEST_F(RunTest, NeedsNoWritableWorkingDirectory) {
  write_experiment(two_models());
  test::Process process(
      {std::string(SLUICE_TEST_PROGRAMS) + "/sluice-run", folder_.file("exp.json"), "--gpu", "sim",
       "--duration", "0.3", "--out", folder_.file("logs")},
      {.folder = "/proc"});  // not even root can write there
  const base::Captured got = process.finish();
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_NE(read("logs/models_pid.json"), "");
}

TEST_F(RunTest, WritesThePidsWhereAnOldParserLooks) {
  write_experiment(two_models());
  const base::Captured got = run("sluice-run", {"exp.json", "--gpu", "sim", "--duration", "0.3",
                                                "--pid-file", "models_pid.json"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(read("models_pid.json"), read("logs/models_pid.json"));
  EXPECT_NE(read("models_pid.json"), "");
}

// Prevents: two runs write the same logs, and a table has the jobs of both.
TEST_F(RunTest, AFolderInUseIsRefusedAndThatOfADeadRunIsNot) {
  json experiment = two_models();
  experiment["exp_dur"] = 3000;
  write_experiment(experiment);
  const auto first = start("sluice-run", {"exp.json", "--gpu", "sim", "--out", "logs"});
  wait_for_jobs("critical");
  const std::string log = read("logs/critical.log");
  test::Process second({std::string(SLUICE_TEST_PROGRAMS) + "/sluice-run", "exp.json", "--gpu",
                        "sim", "--out", "../" + folder_.path().filename().string() + "/logs/"},
                       {.folder = folder_.path()});
  const base::Captured refused = second.finish();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("is in use by another `sluice run`, pid " +
                             std::to_string(first->pid()) + "; choose another folder"),
            std::string::npos)
      << refused.err;
  EXPECT_TRUE(read("logs/critical.log").starts_with(log)) << "the second run wrote to the log";
  first->signal(SIGKILL);
  first->wait();
  const base::Captured third =
      run("sluice-run", {"exp.json", "--gpu", "sim", "--duration", "0.3", "--out", "logs"});
  EXPECT_EQ(third.exit_code, 0) << third.err;
  EXPECT_NE(third.out.find("replacing the results of an earlier run in logs\n"), std::string::npos)
      << third.out;
}

// Prevents: a log of an earlier run seems to belong to this run.
TEST_F(RunTest, NothingIsLeftOfAReplacedRun) {
  write_experiment(two_models());
  const std::vector<std::string> args{"exp.json", "--gpu", "sim", "--duration", "0.3"};
  std::vector<std::string> traced = args;
  traced.emplace_back("--trace");
  ASSERT_EQ(run("sluice-run", traced).exit_code, 0) << read("stderr.txt");
  EXPECT_EQ(read("stdout.txt").find("replacing"), std::string::npos);
  static_cast<void>(folder_.write("logs/report.html", "old"));
  static_cast<void>(folder_.write("logs/notes.txt", "the user's own"));
  json experiment = two_models();
  experiment["models"].erase(1);
  write_experiment(experiment);
  ASSERT_EQ(run("sluice-run", args).exit_code, 0) << read("stderr.txt");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "logs")) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"best_effort.csv", "best_effort.log", "best_effort.out",
                                   "experiment.resolved.json", "models_pid.json", "notes.txt",
                                   "results.csv", "results.json", "status.json"}));
}

// Prevents: a folder that another user has prepared takes files of this user, or stops a run.
TEST_F(RunTest, AForeignFolderTakesNoFileOutsideOfIt) {
  Experiment experiment;
  experiment.models.emplace_back().output_file_path = folder_.file("logs");
  std::filesystem::create_directory(folder_.file("logs"));
  static_cast<void>(folder_.write("mine.log", "the user's own"));
  const json former{{"models",
                     {{{"output_file_name", "../mine"}},
                      {{"output_file_name", folder_.file("mine")}},
                      {{"output_file_name", 7}},
                      8}}};
  static_cast<void>(folder_.write("logs/experiment.resolved.json", former.dump()));
  EXPECT_TRUE(remove_former_run(experiment));
  EXPECT_EQ(read("mine.log"), "the user's own");
}

TEST_F(RunTest, CtrlCEndsWorkersAndKeepsLogs) {
  const auto process = start_two_models(3000);
  process->signal(SIGINT);
  EXPECT_EQ(process->wait(test::kProgramPatience), 130) << read("stderr.txt");
  EXPECT_EQ(json::parse(read("logs/results.json"))["stopped_by"], "a signal");
  EXPECT_GT(jobs("critical"), 0U);
  expect_nothing_left();
}

// Prevents: the board, the socket or their folder stay, because killed workers remove nothing.
// Seen to fail without remove_what_a_killed_controller_left(): 5 s, and two files.
TEST_F(RunTest, NothingIsLeftOfAKilledController) {
  const auto process = start_two_models(60000);
  const std::string session = "run-" + std::to_string(process->pid());
  const auto controller = static_cast<pid_t>(test::Look(session).board().controller_pid.load());
  ASSERT_GT(controller, 0);
  ASSERT_EQ(kill(controller, SIGKILL), 0);
  const std::size_t before = jobs("critical");
  EXPECT_TRUE(test::eventually([&] { return jobs("critical") > before + 2; }));
  process->signal(SIGINT);
  EXPECT_EQ(process->wait(test::kProgramPatience), 130) << read("stderr.txt");
  EXPECT_EQ(read("stderr.txt").find("still exists"), std::string::npos) << read("stderr.txt");
  expect_nothing_left();
}

TEST_F(RunTest, AWorkerThatDiesIsReportedAndTheOthersGoOn) {
  const auto process = start_two_models(3000);
  const auto workers = worker_pids();
  ASSERT_EQ(workers.size(), 2U);
  kill(workers[1], SIGKILL);
  const std::string line =
      "sluice run: critical (pid " + std::to_string(workers[1]) + ") was killed by signal 9";
  EXPECT_TRUE(test::eventually([&] { return read("stderr.txt").find(line) != std::string::npos; },
                               test::kProgramPatience))
      << read("stderr.txt");
  wait_for_jobs("best_effort", jobs("best_effort") + 3);
  process->signal(SIGTERM);
  EXPECT_EQ(process->wait(test::kProgramPatience), 143);
  EXPECT_EQ(json::parse(read("logs/results.json"))["models"][1]["died"],
            "was killed by signal 9 (Killed)");
  expect_nothing_left();
}

// Prevents: a run of hours whose table is lost because its disk is full at the end.
TEST_F(RunTest, AFullDiskTakesFilesAndNotTheTable) {
  const auto process = start_two_models(5);
  for (const char* name : {"status.json", "results.json", "results.csv"}) {
    std::filesystem::create_symlink("/dev/full", folder_.path() / "logs" / name);
  }
  EXPECT_EQ(process->wait(test::kProgramPatience), 1);
  EXPECT_NE(read("stdout.txt").find("JOBS/s"), std::string::npos) << read("stdout.txt");
  for (const char* name : {"status.json", "results.json", "results.csv"}) {
    EXPECT_NE(read("stderr.txt").find(std::string(name) + ": cannot be written: No space left"),
              std::string::npos)
        << read("stderr.txt");
  }
}

TEST_F(RunTest, ARunWhoseWorkersAllDieFails) {
  const auto process = start_two_models(3000);
  for (const pid_t worker : worker_pids()) kill(worker, SIGKILL);
  EXPECT_EQ(process->wait(test::kProgramPatience), 1);
  expect_nothing_left();
}

TEST_F(RunTest, WorkersDieWithARunnerThatIsKilled) {
  // Otherwise a replay would occupy the GPU indefinitely.
  const auto process = start_two_models(3000);
  process->signal(SIGKILL);
  EXPECT_EQ(process->wait(test::kProgramPatience), 137);
  expect_nothing_left();
  EXPECT_GT(jobs("critical"), 0U);
}

TEST_F(RunTest, AWorkerThatCannotLoadEndsTheRunWithItsLastLines) {
  write_experiment(two_models());
  std::filesystem::create_directories(folder_.path() / "logs/critical.csv");
  const base::Captured got = run("sluice-run", {"exp.json", "--gpu", "sim"});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_TRUE(std::regex_search(
      got.err, std::regex("sluice run: while loading, critical \\(pid \\d+\\) exited with 1; its "
                          "last lines:\n.*logs/critical.csv: cannot be created: Is a directory")))
      << got.err;
  EXPECT_EQ(jobs("best_effort"), 0U);  // no worker starts before all have loaded
  expect_nothing_left();
}

TEST_F(RunTest, ReportsWhichModelsAreStillLoading) {
  write_experiment(two_models());
  std::filesystem::create_directories(folder_.path() / "logs");
  // Opening the FIFO for writing blocks until there is a reader.
  ASSERT_EQ(mkfifo((folder_.path() / "logs/critical.csv").c_str(), 0600), 0);
  const auto process = start("sluice-run", {"exp.json", "--gpu", "sim"});
  const auto said = [&] { return read("stderr.txt"); };
  const auto warned = [&] {
    return said().find(" s, still loading: critical\n") != std::string::npos;
  };
  EXPECT_TRUE(test::eventually(warned, test::kProgramPatience)) << said();
  process->signal(SIGINT);
  EXPECT_EQ(process->wait(test::kProgramPatience), 128 + SIGINT);
  expect_nothing_left();
}

}  // namespace
}  // namespace sluice::runner
