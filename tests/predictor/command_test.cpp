// `sluice predict` as a program, from a pack and records to the time of a network. The times are
// made up from the features: they say nothing of any GPU.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/child.hpp"
#include "base/error.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "profiler/workers/predictor_pipe.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kPack = SLUICE_TEST_DATA "/small.programs";

/// Microseconds of a program of the pack.
double made_up(const profiler::Program& program, const profiler::Task& task, double slower) {
  double features = 0;
  for (const float feature : program.features[0]) features += feature;
  return slower * 1e-6 * (5 + task.flop / 1e6 + features / 20);
}

class PredictCommand : public testing::Test {
 protected:
  PredictCommand() {
    const auto pack = profiler::read_pack(kPack);
    std::ofstream out(folder_.file("records.jsonl"));
    for (const auto& program : pack.programs) {
      const auto& task = pack.tasks.at(program.task);
      for (const auto& [device, slower] : {std::pair{"H200", 1.0}, {"H200@32", 3.0}}) {
        profiler::Record record;
        record.target = pack.header.target;
        record.task_name = task.name;
        record.seconds = {made_up(program, task, slower)};
        record.details.emplace();
        record.details->task = program.task;
        record.details->program = program.id;
        record.details->device = device;
        record.details->spread = 1;
        out << profiler::to_line(record) << '\n';
      }
    }
  }

  base::Captured predict(std::vector<std::string> args) const {
    if (args[0] != "make_dataset") args.insert(args.end(), {"--device", "cpu"});
    args.insert(args.begin(), SLUICE_TEST_PREDICT);
    return base::capture(args, {"OMP_NUM_THREADS=1"});
  }
  /// A run that must succeed. Returns what it printed.
  std::string printed(const std::vector<std::string>& args) const {
    const base::Captured ended = predict(args);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  }
  std::string refused(int exit_code, const std::vector<std::string>& args) const {
    const base::Captured ended = predict(args);
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    return ended.err;
  }
  [[nodiscard]] std::string dataset() const { return folder_.file("dataset"); }
  [[nodiscard]] std::string cache() const { return folder_.file("cache"); }
  std::string make_dataset() const {
    return printed(
        {"make_dataset", "-i", kPack, "-i", folder_.file("records.jsonl"), "--out", dataset()});
  }
  std::string train(std::vector<std::string> args) const {
    args.insert(args.begin(),
                {"train", "-i", dataset(), "--cache_dir", cache(), "--set", "epochs=40"});
    return printed(args);
  }
  /// The cell of a column in the last line of metrics.csv.
  [[nodiscard]] double metric(const std::string& name) const {
    std::ifstream in(folder_.file("cache/metrics.csv"));
    std::string head;
    std::string line;
    std::getline(in, head);
    for (std::string next; std::getline(in, next);) line = next;
    const auto cell = [](std::string text, std::ptrdiff_t number) {
      // No cell of these tests has a comma inside quotes.
      for (; number > 0; --number) text.erase(0, text.find(',') + 1);
      return text.substr(0, text.find(','));
    };
    for (std::ptrdiff_t i = 0; i <= std::ranges::count(head, ','); ++i) {
      if (cell(head, i) == name) return std::stod(cell(line, i));
    }
    ADD_FAILURE() << "no column " << name << " in " << head;
    return 0;
  }

  TempFolder folder_;
};

TEST_F(PredictCommand, FromPackAndRecordsToANetwork) {
  EXPECT_THAT(make_dataset(), ContainsRegex("devices: H200 \\([0-9]+\\), H200@32 \\([0-9]+\\)"));
  EXPECT_THAT(train({"--mode", "h200"}), ContainsRegex("transformer +MAPE +[0-9.]+ %"));
  EXPECT_LT(metric("mape"), 0.6);
  EXPECT_THAT(read_file(folder_.file("cache/loss.csv")),
              StartsWith("phase,epoch,seconds,loss,test_mape\ntrain,0,"));
  const double trained = metric("mape");
  EXPECT_THAT(printed({"run", "-i", dataset(), "--mode", "h200", "--cache_dir", cache()}),
              HasSubstr("loaded"));
  EXPECT_DOUBLE_EQ(metric("mape"), trained) << "loaded is not what was saved";
  EXPECT_THAT(printed({"replay", "-i", dataset(), "--cache_dir", cache(), "--networks", "mlp"}),
              ContainsRegex("\\[Simple\\] Estimated total latency of mlp: [0-9.]+ ms\n  batch 1 on "
                            "H200: measured sum"));
  EXPECT_THAT(
      read_file(folder_.file("cache/statistic.csv")),
      StartsWith("task_id,T_profile,T_tenset,T_predict,weight,N_leaf,src,flop_ct,workload_key"));
  EXPECT_THAT(printed({"analyze", "-i", dataset(), "--mode", "h200", "--cache_dir", cache()}),
              HasSubstr("operator  softmax"));
  EXPECT_THAT(printed({"sche_search", "-i", kPack, "--cache_dir", cache(), "--device-name", "H200",
                       "--top", "2"}),
              HasSubstr("the 2 fastest of"));
}

// A test with the programs that trained tells a user that the predictor is better than it is.
TEST_F(PredictCommand, WithoutAModeThoseTestThatTestedInTheTraining) {
  make_dataset();
  const std::vector<std::string> run{"run", "-i", dataset(), "--cache_dir", cache()};
  for (const std::vector<std::string>& split :
       {std::vector<std::string>{"--mode", "h200:sample2", "--seed", "7"},
        {"--mode", "by_device:train-h200,test-h200@32", "--finetune_tasks", "1", "--set",
         "tune_epochs=5"}}) {
    std::filesystem::remove_all(cache());
    train(split);
    const std::string tested = read_file(folder_.file("cache/predictions.csv"));
    EXPECT_THAT(printed(run), HasSubstr("tests the labels that tested in the training: --mode '" +
                                        split[1] + "'"));
    EXPECT_EQ(read_file(folder_.file("cache/predictions.csv")), tested);
  }
  EXPECT_THAT(read_file(folder_.file("cache/metrics.csv")),
              HasSubstr("\nloaded,\"by_device:train-h200,test-h200@32\",0,1,kmeans,"));
}

TEST_F(PredictCommand, WarnsThatProgramsTestThatTrained) {
  make_dataset();
  train({"--mode", "h200"});
  const std::string file = folder_.file("cache/predictor.json");
  const auto replace = [&](const std::string& old, const std::string& now) {
    std::string text = read_file(file);
    ASSERT_NE(text.find(old), std::string::npos);
    std::ofstream(file) << text.replace(text.find(old), old.size(), now);
  };
  const auto warning = [&] {
    const auto ended = predict({"run", "-i", dataset(), "--cache_dir", cache()});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.err;
  };
  EXPECT_EQ(warning(), "");
  replace("\"mode\": \"h200\"", "\"mode\": \"h100\"");
  EXPECT_THAT(warning(), ContainsRegex("no device 'h100' in the data set.*all [0-9]+ labels test, "
                                       "also those of programs that the predictor was trained"));
  replace("\"mode\": ", "\"other\": ");
  EXPECT_THAT(warning(), HasSubstr("(predictor.json has no mode): all "));
}

TEST_F(PredictCommand, RanksProgramsOverAPipe) {
  make_dataset();
  train({"--mode", "h200"});
  const profiler::Pack pack = profiler::read_pack(kPack);
  std::vector<std::optional<profiler::Program>> programs{std::nullopt};
  for (std::size_t i = 0; i < 5; ++i) programs.emplace_back(pack.programs[i]);
  const profiler::Task& task = pack.tasks.at(pack.programs[0].task);
  profiler::PredictorPipe pipe(
      {SLUICE_TEST_PREDICT, "rank", "--cache_dir", cache(), "--device-name", "H200"});
  const std::vector<float> rated = pipe.rate(task, programs);
  ASSERT_EQ(rated.size(), 6U);
  EXPECT_TRUE(std::isinf(rated[0])) << "the space refused it";
  for (std::size_t i = 1; i < 6; ++i) {
    EXPECT_GT(rated[i], 0) << "between 1 us and 1 s";
    EXPECT_LT(rated[i], 14);
  }
  // One program alone is rated as among others: nothing depends on the batch.
  EXPECT_NEAR(pipe.rate(task, {programs[3]})[0], rated[3], 1e-4);
  programs[1]->position.clear();
  EXPECT_THAT([&] { (void)pipe.rate(task, programs); },
              testing::ThrowsMessage<base::RunError>(HasSubstr("leaves and 0 positions")));
  EXPECT_EQ(pipe.rate(task, {programs[2]})[0], pipe.rate(task, {programs[2]})[0])
      << "and it goes on";
}

TEST_F(PredictCommand, TunesWithAPredictor) {
  make_dataset();
  train({"--mode", "h200"});
  const auto tuned = [&](const std::string& device) {
    return base::capture(
        {SLUICE_TEST_OPBENCH, "run", "--modelname", "net", "--tuner", "predict", "--predictor",
         cache(), "--predictor-device", device, "--trials", "20", "--out", folder_.file("tuned")},
        {"SLUICE_TVM_PYTHON=" SLUICE_TEST_FAKE_PROGRAMS, "OMP_NUM_THREADS=1"});
  };
  const base::Captured ended = tuned("H200");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("tuned: {'mean': "));
  EXPECT_TRUE(
      std::filesystem::exists(folder_.file("tuned/Performance/net-predict-llvm-autotvm.json")));
  const base::Captured unknown = tuned("B200");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("no device 'B200' in devices.csv"));
}

TEST_F(PredictCommand, ActionsWithoutAPredictorArePrograms) {
  const base::Captured ended =
      base::capture({SLUICE_TEST_PREDICT, "job_time", "1:1.5", "8:5", "--batch", "4"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "batch 4: 3.000 ms (between 1 and 8)\n");
  EXPECT_EQ(
      base::capture({SLUICE_TEST_PREDICT, "-o", "job_time", "1:1.5", "8:5", "--batch", "4"}).out,
      ended.out);
}

TEST_F(PredictCommand, ComparesModels) {
  make_dataset();
  const std::string lines = train({"--mode", "by_device:train-h200,test-h200@32", "--model",
                                   "mean,roofline,copied,scaling,mlp,lstm"});
  for (const char* model : {"mean", "roofline", "copied", "scaling", "mlp", "lstm"}) {
    EXPECT_THAT(lines, HasSubstr("\n" + std::string(model) + " ")) << lines;
    EXPECT_TRUE(
        std::filesystem::exists(folder_.file("cache/" + std::string(model) + "/predictions.csv")));
  }
  EXPECT_THAT(refused(2, {"replay", "-i", dataset(), "--cache_dir", cache()}),
              HasSubstr("there is no predictor in " + cache() + "; choose one of " + cache() +
                        "/lstm, " + cache() + "/mlp\n"));
  // Copied from a device on which all takes a third of the time.
  EXPECT_THAT(lines, ContainsRegex("copied +MAPE +66.7 %"));
}

TEST_F(PredictCommand, TunesWithAFewTasks) {
  make_dataset();
  const std::string lines =
      train({"--mode", "by_device:train-h200,test-h200@32", "--finetune_tasks", "2", "--set",
             "tune_epochs=20", "--seed", "3"});
  EXPECT_THAT(lines,
              ContainsRegex("Selected 2 tasks: [0-9]+, [0-9]+ using the 'kmeans' method, with the "
                            "diff2origin of [0-9.]+\n"));
  EXPECT_THAT(read_file(folder_.file("cache/loss.csv")), HasSubstr("\ntune,19,"));
  EXPECT_THAT(lines, ContainsRegex("[1-9][0-9]* labels train, [1-9][0-9]* tune"));
  EXPECT_THAT(
      train({"--mode", "by_device:train-h200,test-h200@32", "--finetune_tasks", "2", "--scratch"}),
      ContainsRegex("[1-9][0-9]* labels train, 0 tune"));
}

TEST_F(PredictCommand, AnotherPredictorIsTuned) {
  make_dataset();
  train({"--mode", "h200"});
  EXPECT_THAT(printed({"train", "-i", dataset(), "--mode", "h200@32", "--finetune_cache_dir",
                       cache(), "--cache_dir", folder_.file("tuned")}),
              HasSubstr("0 labels train, "));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("tuned/predictor.pt")));
}

// A line "mlp" that a transformer has earned is worse than no line.
TEST_F(PredictCommand, GoesOnWithTheNetworkThatWasSaved) {
  make_dataset();
  EXPECT_THAT(train({"--mode", "h200", "--set", "network=mlp"}), HasSubstr("\nmlp "));
  const std::vector<std::string> more{"train",  "-i",   dataset(),      "--cache_dir", cache(),
                                      "--mode", "h200", "--load_cache", "--limit-s",   "1"};
  EXPECT_THAT(printed(more), HasSubstr("\nmlp "));
  auto named = more;
  named.insert(named.end(), {"--model", "transformer"});
  EXPECT_THAT(refused(2, named),
              HasSubstr("--model transformer: the predictor in " + cache() + " is mlp"));
  EXPECT_THAT(refused(2, {"train", "-i", dataset(), "--mode", "h200", "--finetune_cache_dir",
                          cache(), "--model", "lstm", "--cache_dir", folder_.file("tuned")}),
              HasSubstr("--model lstm: the predictor in " + cache() + " is mlp"));
}

TEST_F(PredictCommand, ReplaysTheDevicesOfTheMode) {
  make_dataset();
  train({"--mode", "h200"});
  const auto replayed = [&](const std::string& mode) {
    return printed({"replay", "-i", dataset(), "--cache_dir", cache(), "--mode", mode});
  };
  EXPECT_THAT(replayed("h200@32"), HasSubstr("on H200@32: measured"));
  EXPECT_THAT(replayed("h200@32"), Not(HasSubstr("on H200: measured")));
  EXPECT_THAT(replayed("h200,h200@32"), HasSubstr("on H200: measured"));
  EXPECT_THAT(refused(2, {"replay", "-i", dataset(), "--cache_dir", cache(), "--mode", "h100"}),
              HasSubstr("no device 'h100'"));
}

// The time of two calls is not the time of a network.
TEST_F(PredictCommand, ReplaySaysInTheFirstLineWhatIsLeftOut) {
  make_dataset();
  train({"--mode", "h200"});
  std::ifstream all(folder_.file("records.jsonl"));
  std::ofstream some(folder_.file("some.jsonl"));
  for (std::string line; std::getline(all, line);) {
    if (line.find("softmax") == std::string::npos) some << line << '\n';
  }
  some.close();
  printed({"make_dataset", "-i", kPack, "-i", folder_.file("some.jsonl"), "--out",
           folder_.file("some")});
  const std::string lines = printed({"replay", "-i", folder_.file("some"), "--cache_dir", cache()});
  EXPECT_THAT(lines, Not(HasSubstr("total latency of mlp")));
  EXPECT_THAT(lines, ContainsRegex("\\[Simple\\] Estimated latency of 2 of 3 calls of mlp: [0-9.]+ "
                                   "ms; 1 has no measured program\n  batch 1 on H200: "));
  EXPECT_THAT(lines, HasSubstr("Estimated total latency of pool-28: "));
}

// A predictor in --out would not be found by the next command.
TEST_F(PredictCommand, OutIsForResultsOnly) {
  make_dataset();
  const std::string out = folder_.file("out");
  const auto exists = [](const std::string& file) { return std::filesystem::exists(file); };
  train({"--mode", "h200", "--out", out});
  EXPECT_TRUE(exists(cache() + "/predictor.pt") && exists(cache() + "/predictor.json"));
  EXPECT_FALSE(exists(out + "/predictor.pt") || exists(out + "/predictor.json"));
  for (const char* result : {"/loss.csv", "/metrics.csv", "/predictions.csv"}) {
    EXPECT_TRUE(exists(out + result)) << result;
    EXPECT_FALSE(exists(cache() + result)) << result;
  }
  printed({"run", "-i", dataset(), "--mode", "h200", "--cache_dir", cache(), "--out", out});
  printed({"train", "-i", dataset(), "--mode", "h200", "--cache_dir", cache(), "--out",
           folder_.file("more"), "--load_cache", "--limit-s", "1"});
  train({"--mode", "h200", "--out", out, "--model", "mlp,mean"});
  EXPECT_TRUE(exists(cache() + "/mlp/predictor.pt") && exists(out + "/mlp/loss.csv"));
  EXPECT_TRUE(exists(out + "/mean/predictions.csv") && !exists(cache() + "/mean"));
}

// The metrics of one model next to the network of another are taken for the network's.
TEST_F(PredictCommand, NoResultsNextToThePredictorOfAnotherModel) {
  make_dataset();
  train({"--mode", "h200"});
  const std::string other = folder_.file("other");
  const std::string metrics = read_file(folder_.file("cache/metrics.csv"));
  const std::vector<std::string> mean{"train",       "-i",    dataset(), "--mode", "h200",
                                      "--cache_dir", cache(), "--model", "mean"};
  EXPECT_THAT(refused(2, mean), HasSubstr("results of mean are not its own; give --out"));
  EXPECT_THAT(refused(2, {"train", "-i", dataset(), "--mode", "h200", "--cache_dir", other, "--out",
                          cache()}),
              HasSubstr("results of transformer are not its own"));
  EXPECT_EQ(read_file(folder_.file("cache/metrics.csv")), metrics);
  auto elsewhere = mean;
  elsewhere.insert(elsewhere.end(), {"--out", other});
  printed(elsewhere);
  printed({"train", "-i", dataset(), "--mode", "h200", "--cache_dir", other, "--limit-s", "1"});
  EXPECT_THAT(refused(2, {"run", "-i", dataset(), "--cache_dir", cache(), "--out", other}),
              HasSubstr("results of the loaded predictor are not its own"));
}

TEST_F(PredictCommand, SearchesForAConfig) {
  make_dataset();
  EXPECT_THAT(printed({"tune", "-i", dataset(), "--mode", "h200", "--trials", "2", "--cache_dir",
                       cache(), "--limit-s", "3"}),
              HasSubstr("trial 1: mape "));
  EXPECT_THAT(train({"--mode", "h200", "-c", folder_.file("cache/tuned.json")}), HasSubstr("MAPE"));
}

// A typing error must not cost the results of the training before.
TEST_F(PredictCommand, RefusedCommandsWriteNothing) {
  make_dataset();
  std::filesystem::create_directory(cache());
  for (const char* file : {"loss.csv", "trials.csv"}) {
    std::ofstream(folder_.file("cache/" + std::string(file))) << "kept";
  }
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"train", "--set", "layer=1"},
        {"train", "-c", folder_.file("none.json")},
        {"train", "--load_cache"},
        {"train", "--finetune_cache_dir", folder_.file("none")},
        {"train", "--model", "mean,mlp", "--set", "layer=1"},
        {"tune", "--set", "layer=1"}}) {
    std::vector<std::string> args = wrong;
    args.insert(args.end(), {"-i", dataset(), "--cache_dir", cache()});
    refused(2, args);
  }
  EXPECT_EQ(read_file(folder_.file("cache/loss.csv")), "kept");
  EXPECT_EQ(read_file(folder_.file("cache/trials.csv")), "kept");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("cache/mean")));
}

TEST_F(PredictCommand, SaysWhatIsWrong) {
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", folder_.file("none")}),
              HasSubstr("make one with `sluice predict make_dataset`"));
  make_dataset();
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", dataset(), "--mode", "h100"}),
              HasSubstr("no device 'h100'"));
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", dataset(), "--set", "layer=1"}),
              HasSubstr("layer"));
  EXPECT_THAT(refused(2, {"run", "-i", dataset(), "--cache_dir", cache()}),
              HasSubstr("there is no predictor in"));
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", dataset(), "--mode", "h200",
                          "--finetune_tasks", "99"}),
              HasSubstr("--finetune_tasks 99: only"));
}

}  // namespace
}  // namespace sluice::test
