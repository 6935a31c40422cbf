// What a user mistypes must be said before a training of an hour begins.
#include "predictor/options.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Options parsed(std::vector<std::string> args) {
  args.insert(args.begin(), "sluice-predict");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  Options options;
  EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), std::nullopt);
  return options;
}

TEST(Options, TheActionMayBeAnOption) {
  EXPECT_EQ(parsed({"train", "-i", "d"}).action, "train");
  EXPECT_EQ(parsed({"-o", "sche_search", "-i", "d"}).action, "sche_search");
}

TEST(Options, SeveralModelsAndInputs) {
  const Options options = parsed(
      {"train", "-i", "a", "-i", "b", "--model", "mlp,xgboost", "--set", "lr=1", "--set", "cmd=1"});
  EXPECT_THAT(options.inputs, ElementsAre("a", "b"));
  EXPECT_THAT(options.models, ElementsAre("mlp", "xgboost"));
  EXPECT_THAT(options.settings, ElementsAre("lr=1", "cmd=1"));
}

TEST(Options, ThePredictorIsNotWrittenIntoAFolderOfTheSources) {
  EXPECT_EQ(parsed({"train", "-i", "d"}).cache_dir, "predictor-cache");
}

TEST(Options, CountsHaveBounds) {
  EXPECT_EQ(parsed({"tune", "-i", "d", "--trials", "100000"}).trials, 100'000U);
  EXPECT_EQ(parsed({"train", "-i", "d", "--finetune_tasks", "0"}).finetune_tasks, 0U);
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{
           {"--trials", "100001"}, {"--trials", "0"}, {"--streams", "1025"}, {"--top", "0"}}) {
    std::vector<std::string> args{"sluice-predict", "tune", "-i", "d", option, value};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    Options options;
    EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), 2) << option;
  }
}

TEST(Options, RefusesAtOnce) {
  const auto refuse = [](const std::vector<std::string>& args, const char* text) {
    EXPECT_THAT([&] { (void)parsed(args); }, ThrowsMessage<base::UsageError>(HasSubstr(text)));
  };
  refuse({}, "no action; give one of make_dataset");
  refuse({"trian", "-i", "d"}, "unknown action 'trian', did you mean 'train'?");
  refuse({"train"}, "-i is missing: the folder of a data set");
  refuse({"make_dataset"}, "-i is missing: packs and records");
  refuse({"train", "-i", "d", "--mode", "h200.by_net:x"}, "--mode: 'x'");
}

}  // namespace
}  // namespace sluice::predictor
