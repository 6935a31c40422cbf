// What a user mistypes must be said before a training of an hour begins.
#include "predictor/options.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "predictor/actions.hpp"

namespace sluice::predictor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::optional<int> parse(std::vector<std::string> args, Options& options) {
  args.insert(args.begin(), "sluice-predict");
  return parse_options(action_first(args), options);
}

Options parsed(const std::vector<std::string>& args) {
  Options options;
  EXPECT_EQ(parse(args, options), std::nullopt);
  return options;
}

TEST(Options, TheActionMayBeAnOption) {
  EXPECT_EQ(parsed({"train", "-i", "d"}).action, "train");
  EXPECT_EQ(parsed({"-o", "sche_search", "-i", "d"}).action, "sche_search");
  const Options options = parsed({"-i", "d", "--streams", "2", "-o", "replay"});
  EXPECT_EQ(options.action, "replay");
  EXPECT_EQ(options.streams, 2U);
}

// The actions in Python are run with what action_first() returns.
TEST(ActionFirst, IsTheSameForEachAction) {
  for (const Action& action : actions()) {
    EXPECT_THAT(action_first({"p", "a", "-o", action.name, "--b", "c"}),
                ElementsAre("p", "a", "-o", action.name, "--b", "c"))
        << "-o is the action's own";
    EXPECT_THAT(action_first({"p", "--b", "c", "-o", action.name}),
                ElementsAre("p", action.name, "--b", "c"));
    EXPECT_THAT(general_help(), HasSubstr("\n  " + action.name + " "));
  }
  EXPECT_THAT(action_first({"p", "--b", "-o"}), ElementsAre("p", "--b", "-o"));
  EXPECT_THAT(action_first({"p"}), ElementsAre("p"));
}

TEST(Options, SeveralModelsAndInputs) {
  EXPECT_THAT(parsed({"make_dataset", "-i", "a", "-i", "b"}).inputs, ElementsAre("a", "b"));
  const Options options =
      parsed({"train", "-i", "d", "--model", "mlp,xgboost", "--set", "lr=1", "--set", "cmd=1"});
  EXPECT_THAT(options.models, ElementsAre("mlp", "xgboost"));
  EXPECT_THAT(options.settings, ElementsAre("lr=1", "cmd=1"));
}

TEST(Options, ThePredictorIsNotWrittenIntoAFolderOfTheSources) {
  EXPECT_EQ(parsed({"train", "-i", "d"}).cache_dir, "predictor-cache");
}

TEST(Options, CountsHaveBounds) {
  EXPECT_EQ(parsed({"tune", "-i", "d", "--trials", "100000"}).trials, 100'000U);
  EXPECT_EQ(parsed({"train", "-i", "d", "--finetune_tasks", "0"}).finetune_tasks, 0U);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"tune", "-i", "d", "--trials", "100001"},
        {"tune", "-i", "d", "--trials", "0"},
        {"replay", "-i", "d", "--streams", "1025"},
        {"sche_search", "-i", "d", "--top", "0"}}) {
    Options options;
    EXPECT_EQ(parse(args, options), 2) << args[3];
  }
}

void refuse(const std::vector<std::string>& args, const char* text) {
  EXPECT_THAT([&] { (void)parsed(args); }, ThrowsMessage<base::UsageError>(HasSubstr(text)))
      << testing::PrintToString(args);
}

TEST(Options, RefusesAtOnce) {
  refuse({}, "no action; it comes first, one of make_dataset");
  refuse({"--mode", "h200", "pairs"}, "no action; it comes first");
  refuse({"trian", "-i", "d"}, "unknown action 'trian', did you mean 'train'?");
  refuse({"trian"}, "rank, job_time, pairs, place, report");
  refuse({"train"}, "-i is missing: the folder of a data set");
  refuse({"make_dataset"}, "-i is missing: packs and records");
  refuse({"sche_search"}, "-i is missing: packs");
  refuse({"train", "-i", "d", "--mode", "h200.by_net:x"}, "--mode: 'x'");
}

// An option that changes nothing gives results of something else than the user asked for.
TEST(Options, RefusesWhatTheActionDoesNotRead) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"run", "-i", "d", "--model", "xgboost"},
        {"run", "-i", "d", "--load_cache"},
        {"replay", "-i", "d", "--device-name", "H200"},
        {"make_dataset", "-i", "p", "--mode", "h200"},
        {"tune", "-i", "d", "--model", "xgboost"},
        {"tune", "-i", "d", "--model", "mlp,lstm"},
        {"train", "-i", "d", "--top", "3"},
        {"train", "-i", "d", "-o", "run"},
        {"train", "-i", "d", "--sampling", "random"},
        {"train", "-i", "d", "--scratch"}}) {
    Options options;
    EXPECT_EQ(parse(args, options), 2) << testing::PrintToString(args);
  }
  refuse({"run", "-i", "a", "-i", "b"}, "one data set only");
  EXPECT_THAT(parsed({"replay", "-i", "d", "--mode", "h200,cpu@1"}).mode, "h200,cpu@1");
  refuse({"replay", "-i", "d", "--mode", "h200.by_net:test-a"}, "replay takes devices only");
  refuse({"replay", "-i", "d", "--mode", "network-a"}, "replay takes devices only");
}

TEST(Options, RefusesWhatContradicts) {
  const auto train = [](std::vector<std::string> args, const char* text) {
    args.insert(args.begin(), {"train", "-i", "d"});
    refuse(args, text);
  };
  for (const char* flag : {"--load_cache", "--finetune_cache_dir=x"}) {
    train({flag, "-c", "gpu"}, "leave out -c and --set");
    train({flag, "--set", "lr=1"}, "leave out -c and --set");
    train({flag, "--model", "xgboost"}, "not xgboost");
    train({flag, "--scratch", "--finetune_tasks", "3"}, "--scratch trains a new predictor");
  }
  train({"--load_cache", "--finetune_cache_dir", "x"}, "not both");
  train({"--finetune_cache_dir", "x", "--model", "mlp,lstm"}, "has one predictor");
  train({"--finetune_cache_dir", "x", "--finetune_datapath", "y"}, "one data set is read");
  train({"--finetune_datapath", "y"}, "needs --finetune_cache_dir");
  train({"--scratch", "--finetune_tasks", "0"}, "--finetune_tasks is 0");
  train({"--model", "xgboost,mean", "-c", "gpu"}, "xgboost, mean reads neither");
  train({"--model", "mlp", "--set", "network=lstm"}, "not both");
  EXPECT_TRUE(
      parsed({"train", "--finetune_cache_dir", "x", "--finetune_datapath", "y"}).inputs.empty());
  EXPECT_EQ(parsed({"train", "-i", "d", "--model", "mean,mlp", "-c", "gpu"}).config, "gpu");
}

}  // namespace
}  // namespace sluice::predictor
