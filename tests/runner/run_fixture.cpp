#include "tests/runner/run_fixture.hpp"

#include <csignal>

#include "tests/support/session.hpp"

namespace sluice::test {
namespace {

using nlohmann::json;

/// Whether a process lives. A zombie counts as dead: a container without an init never reaps it.
bool lives(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat.at(name_end + 2) != 'Z';
}

}  // namespace

RunTest::RunTest() {
  // The tests check no figures, so the simulated GPU may be nearly as fast as a real one.
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
             {"arrival", {{"kind", "periodic"}, {"period_ms", 20}}},
             {"control", hooked}}}}};
}

void RunTest::write_experiment(const json& experiment) const {
  static_cast<void>(folder_.write("exp.json", experiment.dump(2)));
}

base::Captured RunTest::run(const std::string& program, std::vector<std::string> args) {
  const int exit_code = start(program, std::move(args))->wait(kRunPatience);
  return {exit_code, read("stdout.txt"), read("stderr.txt")};
}

std::unique_ptr<Process> RunTest::start(const std::string& program, std::vector<std::string> args) {
  args.insert(args.begin(), std::string(SLUICE_TEST_PROGRAMS) + "/" + program);
  const ProcessOptions options{.folder = folder_.path(),
                               .out = folder_.file("stdout.txt"),
                               .err = folder_.file("stderr.txt"),
                               .signal_when_we_die = SIGTERM};  // so that it ends its workers
  for (const std::string& old : {options.out, options.err}) std::filesystem::remove(old);
  auto process = std::make_unique<Process>(std::move(args), options);
  last_started_ = process->pid();
  return process;
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
  ASSERT_TRUE(eventually([&] { return jobs(model) >= count; }, kProgramPatience))
      << model << " has no jobs: " << read("stderr.txt") << read("logs/" + model + ".out");
}

std::unique_ptr<Process> RunTest::start_two_models(int exp_dur) {
  json experiment = two_models();
  experiment["exp_dur"] = exp_dur;
  write_experiment(experiment);
  auto process = start("sluice-run", {"exp.json", "--gpu", "sim"});
  wait_for_jobs("critical");
  return process;
}

std::vector<pid_t> RunTest::worker_pids() const {
  std::vector<pid_t> pids;
  const json list = json::parse(read("logs/models_pid.json"), nullptr, false);
  if (list.is_discarded()) return pids;
  for (const json& pair : list) pids.push_back(pair.at(1).get<pid_t>());
  return pids;
}

std::string RunTest::read(const std::string& file) const {
  return test::read_file(folder_.file(file));
}

std::vector<std::string> RunTest::sessions() const {
  std::vector<std::string> names{"run-" + std::to_string(last_started_)};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (entry.path().filename() != "results.json") continue;
    const json results = json::parse(read_file(entry.path()), nullptr, false);
    if (results.contains("session")) names.push_back(results["session"]);
  }
  return names;
}

void RunTest::expect_nothing_left() const {
  for (const pid_t pid : worker_pids()) {
    EXPECT_TRUE(eventually([&] { return !lives(pid); }, kProgramPatience))
        << "worker " << pid << " lives";
    if (lives(pid)) kill(pid, SIGKILL);
  }
  for (const std::string& session : sessions()) {
    EXPECT_TRUE(eventually([&] { return files_of_session(session).empty(); }, kProgramPatience))
        << testing::PrintToString(files_of_session(session)) << " are left";
  }
}

}  // namespace sluice::test
