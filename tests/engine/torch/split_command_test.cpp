#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/store/splits.hpp"
#include "tests/runner/run_fixture.hpp"

namespace sluice::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Runs `sluice split` on the CPU, in a store of its own that has copies of the test models.
class SplitCommand : public RunTest {
 protected:
  SplitCommand() { setenv("OMP_NUM_THREADS", "1", 1); }

  void copy(const std::string& model) const {
    std::filesystem::create_directories(folder_.path() / "store");
    std::filesystem::copy(SLUICE_TEST_MODELS "/" + model, folder_.path() / "store" / model,
                          std::filesystem::copy_options::recursive);
  }
  base::Captured split(std::vector<std::string> args) {
    args.insert(args.end(), {"--store", folder_.file("store")});
    return run("sluice-split", std::move(args));
  }
  /// A run that must fail with this exit code. Returns its only line.
  std::string refused(int exit_code, std::vector<std::string> args) {
    const base::Captured ended = split(std::move(args));
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    return ended.err;
  }
  [[nodiscard]] std::string model_json(const std::string& model) const {
    return folder_.file("store/" + model + "/model.json");
  }
};

TEST_F(SplitCommand, WritesTheSplitItsTableAndItsLog) {
  copy("bert_tiny");
  const base::Captured ended =
      split({"bert_tiny", "-c", "3", "--cpu", "-p", "5", "-r", "2", "--batch", "2", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("step 1: "));
  EXPECT_THAT(ended.err, HasSubstr(" s left"));
  const json result = json::parse(ended.out);
  EXPECT_EQ(result["ms"].size(), 3U);
  EXPECT_EQ(result["ended"], "generations");

  const auto found = engine::find_split(model_json("bert_tiny"), 3, "cpu", SLUICE_TORCH_VERSION);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->stale);
  EXPECT_EQ(json(found->split.cuts), result["cuts"]);
  EXPECT_EQ(found->split.batch, 2U);
  EXPECT_GT(found->split.whole_ms, 0);

  EXPECT_THAT(read("results-bert_tiny_3.csv"), testing::StartsWith("step, model-name, std, "));
  EXPECT_EQ(std::ranges::count(read("results-bert_tiny_3.csv"), '\n'), 3);
  const json log = json::parse(read("log/split-log.json"));
  EXPECT_EQ(log["candidates"].size(), result["candidates"]);
  EXPECT_EQ(log["target"]["gpu"], "cpu");
}

TEST_F(SplitCommand, CacheMeasuresNothingTwice) {
  copy("bert_tiny");
  const std::vector<std::string> args{"bert_tiny", "-c", "2",  "--cpu", "-p",   "4",
                                      "-r",        "1",  "-h", "-g",    "again"};
  ASSERT_EQ(split(args).exit_code, 0);
  const json first = json::parse(read("log/split-log.json"))["candidates"];
  ASSERT_EQ(split(args).exit_code, 0);
  // Measured again, a time would differ.
  const json second = json::parse(read("log/split-log.json"))["candidates"];
  for (const json& candidate : first) EXPECT_THAT(second, testing::Contains(candidate));
  EXPECT_NE(read("results-bert_tiny_2-again.csv"), "");
}

TEST_F(SplitCommand, EndsEarlyOrWhenItsTimeIsOver) {
  copy("bert_tiny");
  // Any candidate is measured within this time, but not a whole population.
  const auto ended =
      split({"bert_tiny", "-c", "4", "--cpu", "-p", "500", "--limit-s", "0.1", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(json::parse(ended.out)["ended"], "time");
  EXPECT_LT(json::parse(ended.out)["candidates"], 500);
}

TEST_F(SplitCommand, ListsTheCuts) {
  copy("residual");
  const json cuts = json::parse(split({"residual", "--cuts", "--json"}).out);
  EXPECT_GT(cuts["nodes"], cuts["cuts"].size());
  EXPECT_GT(cuts["cuts"].size(), cuts["one_tensor"]);
  EXPECT_GT(cuts["one_tensor"], 0);
  EXPECT_THAT(split({"residual", "--cuts"}).out, HasSubstr(" of them with one tensor\n"));
}

TEST_F(SplitCommand, ErrorsSayWhatToDo) {
  copy("detector");
  copy("residual");
  EXPECT_THAT(refused(2, {"residual"}), HasSubstr("give -c K, or --cuts"));
  EXPECT_THAT(refused(2, {"-c", "2"}), HasSubstr("no model"));
  EXPECT_THAT(refused(2, {"residual", "-c", "1"}), HasSubstr("from 2 to"));
  EXPECT_THAT(refused(2, {"residual", "-c", "1000", "--cpu"}), HasSubstr("not 1000"));
  EXPECT_THAT(refused(2, {"detector", "-c", "2", "--cpu"}), HasSubstr("into one block at most"));
  EXPECT_THAT(refused(2, {"resnet999", "-c", "2"}), HasSubstr("sluice models export resnet999"));
  EXPECT_THAT(refused(2, {"residual", "-c", "2", "--cpu", "--device", "0"}), HasSubstr("--device"));
  EXPECT_THAT(refused(2, {"residual", "-c", "2", "-g", "a/b"}), HasSubstr("has a slash"));
  // Only an AOTInductor package: there is no graph to cut.
  json model = json::parse(read("store/residual/model.json"));
  model["variants"][0]["format"] = "aoti";
  static_cast<void>(folder_.write("store/residual/model.json", model.dump()));
  EXPECT_THAT(refused(2, {"residual", "-c", "2"}),
              HasSubstr("no torchscript file of \"residual\""));
}

TEST_F(SplitCommand, AFolderThatCannotBeWrittenIsNamed) {
  copy("residual");
  static_cast<void>(folder_.write("file", ""));
  const auto ended = split({"residual", "-c", "2", "--cpu", "--out", "file/x"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("file/x/results-residual_2.csv"));
}

TEST_F(SplitCommand, HelpHasExamples) {
  const auto help = split({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:\n  sluice split resnet50 --cuts"));
}

TEST_F(SplitCommand, MeasuresOnlyTheBestBySumsOfOperators) {
  copy("bert_tiny");
  setenv("SLUICE_MODELS", folder_.file("store").c_str(), 1);
  const base::Captured profiled =
      run("sluice-opbench",
          {"run", "--executor", "torch", "--modelname", "bert_tiny", "--batchsize", "2"});
  unsetenv("SLUICE_MODELS");
  ASSERT_EQ(profiled.exit_code, 0) << profiled.err;
  EXPECT_THAT(profiled.out, HasSubstr("bert_tiny at batch 2 on cpu: "));
  const std::string table = read("data/bert_tiny-b2/op.csv");
  EXPECT_THAT(table, HasSubstr(",aten::"));
  EXPECT_THAT(table, HasSubstr("aten::linear,2x")) << "shapes of the inputs";
  EXPECT_THAT(table, Not(HasSubstr("aten::addmm"))) << "aten::linear calls it";

  const std::string file = folder_.file("data/bert_tiny-b2/op.csv");
  const base::Captured ended = split({"bert_tiny", "-c", "3", "--cpu", "--batch", "2", "--measure",
                                      "4", "--operators", file, "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("candidate 4 of 4: "));
  const json result = json::parse(ended.out);
  EXPECT_EQ(result["candidates"], 4);
  EXPECT_GT(result["rated_by_sums"], 20);
  EXPECT_EQ(result["ended"], "all measured");
  EXPECT_THAT(refused(2, {"bert_tiny", "-c", "2", "--cpu", "--measure", "4", "--operators", file}),
              HasSubstr("of bert_tiny at batch 2 on cpu, not of bert_tiny at batch 1 on cpu"));
  EXPECT_THAT(refused(2, {"bert_tiny", "-c", "2", "--cpu", "--operators", file}),
              HasSubstr("--operators needs --measure N"));
  const json own =
      json::parse(split({"bert_tiny", "-c", "2", "--cpu", "--measure", "2", "--json"}).out);
  EXPECT_EQ(own["candidates"], 2) << "without a file, times of one pass are summed";
}

}  // namespace
}  // namespace sluice::test
