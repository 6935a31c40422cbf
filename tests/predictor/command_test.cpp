// `sluice predict` as a program, from a pack and records to the time of a network. The times are
// made up from the features: they say nothing of any GPU.
#include <gmock/gmock.h>

#include <fstream>

#include "base/child.hpp"
#include "base/error.hpp"
#include "base/json_node.hpp"
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
        record.details->registers = 40;
        record.details->spill_bytes = task.name == "layer_norm" ? 8 : 0;
        out << profiler::to_line(record) << '\n';
      }
    }
  }

  base::Captured predict(std::vector<std::string> args) const {
    args.insert(args.begin(), SLUICE_TEST_PREDICT);
    return base::capture(args);
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
    args.insert(args.begin(), {"train", "-i", dataset(), "--cache_dir", cache()});
    return printed(args);
  }
  /// The cell of a column in the last line of metrics.csv.
  [[nodiscard]] double metric(const std::string& name) const {
    std::ifstream in(folder_.file("cache/metrics.csv"));
    std::string head;
    std::string line;
    std::getline(in, head);
    for (std::string next; std::getline(in, next);) line = next;
    // A mode may have commas.
    if (const auto open = line.find('"'); open != std::string::npos) {
      line.erase(open, line.rfind('"') + 1 - open);
    }
    const auto cell = [](std::string text, std::ptrdiff_t number) {
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
  EXPECT_THAT(train({"--mode", "h200"}), ContainsRegex("gaussian +MAPE +[0-9.]+ %  median"));
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
              ContainsRegex("operator  layer_norm(.|\n)*\nspills    no .*\nspills    yes "));
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
        {"--mode", "by_device:train-h200,test-h200@32", "--finetune_tasks", "1"}}) {
    std::filesystem::remove_all(cache());
    train(split);
    const std::string tested = read_file(folder_.file("cache/predictions.csv"));
    EXPECT_THAT(printed(run), HasSubstr("tests the labels that tested in the training: --mode '" +
                                        split[1] + "'"));
    EXPECT_EQ(read_file(folder_.file("cache/predictions.csv")), tested);
  }
  EXPECT_THAT(read_file(folder_.file("cache/metrics.csv")),
              HasSubstr("\nloaded,\"by_device:train-h200,test-h200@32\",0,1,"));
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
  replace("\"other\": \"h100\"", "\"mode\": 5");
  EXPECT_THAT(refused(2, {"run", "-i", dataset(), "--cache_dir", cache()}),
              HasSubstr("predictor.json is damaged"));
}

TEST_F(PredictCommand, RanksProgramsOverAPipe) {
  make_dataset();
  train({"--mode", "h200"});
  const profiler::Pack pack = profiler::read_pack(kPack);
  std::vector<std::optional<profiler::Program>> programs{std::nullopt};
  profiler::PackReader reader(kPack);
  while (programs.size() < 6) {
    auto entry = reader.next();
    ASSERT_TRUE(entry);
    auto* program = std::get_if<profiler::Program>(&*entry);
    if (program != nullptr && !program->source.empty()) programs.emplace_back(std::move(*program));
  }
  const profiler::Task& task = pack.tasks.at(programs[1]->task);
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
  programs[1]->source.clear();
  EXPECT_TRUE(std::isinf(pipe.rate(task, programs)[1])) << "it cannot be read";
  EXPECT_EQ(pipe.rate(task, programs)[2], rated[2]);
  EXPECT_THAT([&] { (void)pipe.rate(task, {programs[1]}); },
              testing::ThrowsMessage<base::RunError>(HasSubstr("has no source")));
  EXPECT_EQ(pipe.rate(task, {programs[2]})[0], pipe.rate(task, {programs[2]})[0])
      << "and it goes on";
}

TEST_F(PredictCommand, SearchesOnlyWhatItCanPredict) {
  const auto search = [&](const std::string& device, std::vector<std::string> more) {
    more.insert(more.begin(), {"sche_search", "-i", kPack, "--device-name", device, "--cache_dir",
                               cache(), "--out", folder_.file("out")});
    return more;
  };
  // A ratio needs the times on the device that it was trained with.
  make_dataset();
  train(
      {"--mode", "by_device:train-h200,test-h200@32", "--model", "ratio", "--finetune_tasks", "2"});
  EXPECT_THAT(refused(2, search("H200@32", {})),
              HasSubstr("no way to predict any of these programs on H200@32"));
  EXPECT_THAT(printed(search("H200@32", {"-i", folder_.file("records.jsonl")})),
              ContainsRegex("the 5 fastest of [0-9]+ programs .* on H200@32\n"));
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
                                   "copied,ratio,analytic,gaussian", "--finetune_tasks", "2"});
  for (const char* model : {"copied", "ratio", "analytic", "gaussian"}) {
    EXPECT_THAT(lines, HasSubstr("\n" + std::string(model) + " ")) << lines;
    EXPECT_TRUE(
        std::filesystem::exists(folder_.file("cache/" + std::string(model) + "/predictions.csv")));
  }
  EXPECT_THAT(lines, ContainsRegex("Selected 2 tasks: [0-9]+, [0-9]+\n"));
  EXPECT_THAT(lines, ContainsRegex("[1-9][0-9]* labels train, [1-9][0-9]* tune"));
  // Copied from a device on which all takes a third of the time.
  EXPECT_THAT(lines, ContainsRegex("copied +MAPE +66.7 %"));
  EXPECT_THAT(refused(2, {"replay", "-i", dataset(), "--cache_dir", cache()}),
              HasSubstr("there is no predictor in " + cache() + "; choose one of " + cache() +
                        "/analytic, " + cache() + "/copied, "));
  printed({"analyze", "-i", dataset(), "--cache_dir", cache() + "/copied"});
  EXPECT_THAT(read_file(folder_.file("cache/copied/analysis.csv")),
              ContainsRegex("\ndevice,H200@32,[0-9]+,0.666667,0.666667,0.666667,-0.666667\n"));
  EXPECT_THAT(
      printed({"replay", "-i", dataset(), "--cache_dir", cache() + "/copied", "--mode", "h200@32"}),
      HasSubstr(" ms, off by 66.7 %; on 1 streams"));
  // A ratio is of use only if it can be asked later.
  EXPECT_THAT(printed({"run", "-i", dataset(), "--cache_dir", cache() + "/ratio"}),
              HasSubstr("loaded "));
}

// What a user types first, after an install: no pack, no record, no training.
TEST_F(PredictCommand, AnswersWithWhatIsInstalled) {
  EXPECT_THAT(printed({"run", "--out", cache()}),
              ContainsRegex("tests the labels that tested in the training: --mode "
                            "'.*by_net:test-vgg16-vit' --seed 0\nloaded +MAPE"));
  // The figures of its training are those that it has now.
  const auto about =
      base::parse_json_file(std::filesystem::path(SLUICE_TEST_PREDICT).parent_path() /
                            "../../share/sluice/predictor/predictor.json");
  for (const auto& [name, trained] : about.at("metrics").items()) {
    EXPECT_NEAR(metric(name), trained, 1e-3 * trained.get<double>()) << name;
  }
  EXPECT_THAT(printed({"replay", "--networks", "vit", "--out", folder_.file("out")}),
              HasSubstr("latency of vit: "));
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
  EXPECT_TRUE(exists(cache() + "/predictor.cbor") && exists(cache() + "/predictor.json"));
  EXPECT_FALSE(exists(out + "/predictor.cbor") || exists(out + "/predictor.json"));
  for (const char* result : {"/metrics.csv", "/predictions.csv"}) {
    EXPECT_TRUE(exists(out + result)) << result;
    EXPECT_FALSE(exists(cache() + result)) << result;
  }
  printed({"run", "-i", dataset(), "--mode", "h200", "--cache_dir", cache(), "--out", out});
  // The metrics of one training next to the predictor of another are taken for its own.
  EXPECT_THAT(refused(2, {"train", "-i", dataset(), "--mode", "h200", "--cache_dir",
                          folder_.file("other"), "--out", cache()}),
              HasSubstr("these results are not its own; give --out"));
}

// A data set is a cache only.
TEST_F(PredictCommand, ReadsPacksAndRecordsToo) {
  make_dataset();
  const std::string of_dataset = train({"--mode", "h200"});
  const std::string direct = printed({"train", "-i", kPack, "-i", folder_.file("records.jsonl"),
                                      "--mode", "h200", "--cache_dir", folder_.file("direct")});
  const auto until = [](const std::string& text) { return text.substr(0, text.find(" pairs")); };
  EXPECT_EQ(until(direct), until(of_dataset));
}

TEST_F(PredictCommand, SaysWhatIsWrong) {
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", folder_.file("none")}),
              HasSubstr("-i: there is no "));
  make_dataset();
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", dataset(), "--mode", "h100"}),
              HasSubstr("no device 'h100'"));
  EXPECT_THAT(refused(2, {"train", "-i", dataset(), "--model", "transformer"}),
              HasSubstr("transformer was replaced by gaussian"));
  EXPECT_THAT(refused(2, {"run", "-i", dataset(), "--cache_dir", cache()}),
              HasSubstr("there is no " + cache() + "/predictor.cbor; `sluice predict train`"));
  EXPECT_THAT(refused(2, {"train", "--cache_dir", cache(), "-i", dataset(), "--mode", "h200",
                          "--finetune_tasks", "99"}),
              HasSubstr("--finetune_tasks 99: only"));
  EXPECT_THAT(refused(2, {"tune"}), HasSubstr("tune was replaced"));
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

}  // namespace
}  // namespace sluice::test
