// Errors of `sluice run` before anything starts: exit code 2, one line, no files left.
#include <gtest/gtest.h>

#include "tests/runner/run_fixture.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

class RunErrorTest : public test::RunTest {
 protected:
  void expect_refused(std::vector<std::string> args, const std::string& line) {
    args.insert(args.end(), {"--gpu", "sim"});
    const base::Captured got = run("sluice-run", args);
    EXPECT_EQ(got.exit_code, 2) << got.err;
    EXPECT_EQ(got.err, "sluice run: " + line + "\n");
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "logs/models_pid.json"));
    expect_nothing_left();
  }
};

TEST_F(RunErrorTest, MissingExperiment) {
  expect_refused({}, "no experiment file; see sluice run --help");
  expect_refused({"none.json"}, "none.json: cannot be read: No such file or directory");
}

// Prevents: an example of --help that works in a checkout only.
TEST_F(RunErrorTest, AnInstalledExperimentIsFoundFromAnyFolder) {
  expect_refused({"exp_configs/replay/input_device.json", "--device", "3"},
                 "--device: found 3, allowed: 0 (1 simulated GPU here)");
  expect_refused({"exp_configs/none.json"},
                 "exp_configs/none.json: cannot be read: No such file or directory");
}

TEST_F(RunErrorTest, DeviceIndexOutOfRange) {
  json experiment = two_models();
  experiment["device_id"] = 1;
  write_experiment(experiment);
  expect_refused({"exp.json"},
                 "exp.json: /device_id: found 1, allowed: 0 (1 simulated GPU here); --device N "
                 "uses another one");
  expect_refused({"exp.json", "--device", "3"},
                 "--device: found 3, allowed: 0 (1 simulated GPU here)");
}

TEST_F(RunErrorTest, OutputFolderNotWritable) {
  // Not by permissions, which do not stop a test that runs as root.
  json experiment = two_models();
  static_cast<void>(folder_.write("file", ""));
  experiment["models"][0]["output_file_path"] = "file/logs";
  write_experiment(experiment);
  expect_refused({"exp.json"},
                 "exp.json: /models/0/output_file_path: the folder file/logs cannot be made: Not a "
                 "directory");
}

TEST_F(RunErrorTest, BrokenRecording) {
  json experiment = two_models();
  experiment["models"][1]["recording"] = "./broken.json";
  write_experiment(experiment);
  expect_refused({"exp.json"}, "./broken.json: cannot be read: No such file or directory");
  static_cast<void>(folder_.write("broken.json", R"({"model": "m", "rows": []})"));
  expect_refused({"exp.json"}, "./broken.json: /: \"columns\" is missing");
}

TEST_F(RunErrorTest, TwoLogsOfOneNameInOneFolder) {
  json experiment = two_models();
  experiment["models"][1]["output_file_path"] = "other";
  experiment["models"][1]["output_file_name"] = "best_effort";
  write_experiment(experiment);
  expect_refused({"exp.json", "--out", "all"},
                 "exp.json: /models/1: the same log file as /models/0: all/best_effort.log");
}

TEST_F(RunErrorTest, OptionsThatMakeNoSense) {
  write_experiment(two_models());
  expect_refused({"exp.json", "--input", "none.png"}, "--input: there is no file none.png");
  EXPECT_EQ(run("sluice-run", {"exp.json", "--duration", "-1"}).exit_code, 2);
  EXPECT_EQ(run("sluice-run", {"exp.json", "--gpu", "cpu"}).exit_code, 2);
  EXPECT_EQ(run("sluice-run", {"exp.json", "--session", "a/b"}).exit_code, 2);
  EXPECT_EQ(run("sluice-run", {"--no-such-option"}).exit_code, 2);
}

TEST_F(RunErrorTest, MpsWithoutARealGpu) {
  json experiment = two_models();
  experiment["mps"] = true;
  write_experiment(experiment);
  expect_refused({"exp.json"},
                 "exp.json: /mps: MPS needs a real GPU, and there is none here (asked for by --gpu "
                 "sim); remove the key or set it to false");
}

TEST_F(RunErrorTest, NoDuration) {
  json experiment = two_models();
  experiment.erase("exp_dur");
  write_experiment(experiment);
  expect_refused({"exp.json"}, "exp.json: /: \"exp_dur\" is missing, and there is no --duration");
}

}  // namespace
}  // namespace sluice::runner
