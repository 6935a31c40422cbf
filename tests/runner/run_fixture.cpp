#include "tests/runner/run_fixture.hpp"

#include <fcntl.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "shm/session.hpp"

namespace sluice::runner::test {
namespace {

using nlohmann::json;

constexpr auto kPatience = std::chrono::seconds(30);

/// A zombie that nobody waits for, as in containers without an init, counts as dead.
bool lives(pid_t pid) {
  const std::string stat = sluice::test::read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat.at(name_end + 2) != 'Z';
}

}  // namespace

RunTest::RunTest() {
  std::filesystem::create_directory(folder_.path() / "runtime");
  std::filesystem::permissions(folder_.path() / "runtime", std::filesystem::perms::owner_all);
  setenv("XDG_RUNTIME_DIR", folder_.file("runtime").c_str(), 1);
  // No figure matters here, so the simulated GPU may be nearly as fast as a real one.
  setenv("SLUICE_SIM_SCALE", "2", 1);
}

json RunTest::two_models() {
  const json hooked{{"control", true}, {"policy", "device:4"}};
  return {{"exp_dur", 1},
          {"models",
           {{{"model_name", "resnet152_b1"},
             {"backend", "recording"},
             {"output_file_path", "logs"},
             {"output_file_name", "best_effort"},
             {"priority", 0},
             {"control", hooked}},
            {{"model_name", "resnet50_b1"},
             {"backend", "recording"},
             {"output_file_path", "logs"},
             {"output_file_name", "critical"},
             {"priority", 1},
             {"cuda_graph", true},
             {"arrival", {{"kind", "periodic"}, {"period_ms", 6}}},
             {"control", hooked}}}}};
}

void RunTest::write_experiment(const json& experiment) const {
  static_cast<void>(folder_.write("exp.json", experiment.dump(2)));
}

base::Captured RunTest::run(const std::string& program, std::vector<std::string> args) {
  const pid_t pid = start(program, std::move(args));
  return {wait_for(pid), read("stdout.txt"), read("stderr.txt")};
}

pid_t RunTest::start(const std::string& program, std::vector<std::string> args) {
  const auto output = [this](const char* name) {
    return base::Fd(
        open(folder_.file(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  };
  const base::Fd out = output("stdout.txt");
  const base::Fd err = output("stderr.txt");
  base::ChildOptions options;
  options.args = {std::string(SLUICE_TEST_PROGRAMS) + "/" + program};
  options.args.insert(options.args.end(), args.begin(), args.end());
  options.folder = folder_.path();
  options.stdout_fd = out.get();
  options.stderr_fd = err.get();
  options.signal_when_we_die = SIGTERM;
  last_started_ = base::start_child(options);
  return last_started_;
}

int RunTest::wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::size_t RunTest::jobs(const std::string& model) const {
  const std::string log = read("logs/" + model + ".log");
  std::size_t count = 0;
  for (std::size_t at = log.find("\nJCT "); at != std::string::npos;
       at = log.find("\nJCT ", at + 1)) {
    ++count;
  }
  return count;
}

void RunTest::wait_for_jobs(const std::string& model, std::size_t count) const {
  ASSERT_TRUE(eventually([&] { return jobs(model) >= count; }))
      << model << " has no jobs: " << read("stderr.txt") << read("logs/" + model + ".out");
}

std::vector<pid_t> RunTest::worker_pids() const {
  std::vector<pid_t> pids;
  const json list = json::parse(read("models_pid.json"), nullptr, false);
  if (list.is_discarded()) return pids;
  for (const json& pair : list) pids.push_back(pair.at(1).get<pid_t>());
  return pids;
}

std::string RunTest::read(const std::string& file) const {
  return sluice::test::read_file(folder_.file(file));
}

void RunTest::expect_nothing_left() const {
  for (const pid_t pid : worker_pids()) {
    EXPECT_TRUE(eventually([&] { return !lives(pid); })) << "worker " << pid << " lives";
    if (lives(pid)) kill(pid, SIGKILL);
  }
  const std::string board = "/dev/shm/" + shm::board_name("run-" + std::to_string(last_started_));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(board); })) << board << " is left";
  EXPECT_TRUE(eventually([&] {
    return !std::filesystem::exists(folder_.path() / "runtime" / "sluice") ||
           std::filesystem::is_empty(folder_.path() / "runtime" / "sluice");
  })) << "something is left in the runtime folder";
}

bool RunTest::eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace sluice::runner::test
