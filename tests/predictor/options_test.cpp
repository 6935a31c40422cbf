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
  EXPECT_EQ(parsed({"-o", "replay", "-i", "d"}).action, "replay");
  const Options options = parsed({"-i", "d", "--streams", "2", "-o", "replay"});
  EXPECT_EQ(options.action, "replay");
  EXPECT_EQ(options.streams, 2U);
}

// The actions in Python are run with what action_first() returns.
TEST(ActionFirst, IsTheSameForEachAction) {
  for (const Action& action : actions()) {
    if (!action.replaced_by.empty()) continue;
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
  EXPECT_THAT(parsed({"train", "-i", "d", "--model", "gaussian,ratio"}).models,
              ElementsAre("gaussian", "ratio"));
  EXPECT_THAT(parsed({"train", "-i", "d"}).models, ElementsAre("gaussian"));
}

TEST(Options, TestsNeedNoInput) {
  for (const char* action : {"train", "run", "analyze", "replay"}) {
    EXPECT_TRUE(parsed({action}).inputs.empty()) << action;
  }
}

TEST(Options, CountsHaveBounds) {
  EXPECT_EQ(parsed({"train", "-i", "d", "--finetune_tasks", "0"}).finetune_tasks, 0U);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"replay", "-i", "d", "--streams", "1025"},
        {"sche_search", "-i", "d", "--device-name", "H100", "--top", "0"},
        {"sche_search", "-i", "d"},
        {"sche_search", "--device-name", "H100"},
        {"make_dataset"}}) {
    Options options;
    EXPECT_EQ(parse(args, options), 2) << testing::PrintToString(args);
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
  refuse({"tune", "-i", "d"}, "tune was replaced: train has nothing to tune");
  refuse({"profile"}, "profile was replaced: write the device's data sheet");
  refuse({"train", "-i", "d", "--mode", "h200.by_net:x"}, "--mode: 'x'");
}

// An option that changes nothing gives results of something else than the user asked for.
TEST(Options, RefusesWhatTheActionDoesNotRead) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"run", "-i", "d", "--model", "ratio"},
        {"run", "-i", "d", "--load_cache"},
        {"replay", "-i", "d", "--device-name", "H200"},
        {"make_dataset", "-i", "p", "--mode", "h200"},
        {"train", "-i", "d", "--top", "3"},
        {"train", "-i", "d", "-o", "run"},
        {"train", "-i", "d", "--model", "transformer"},
        {"train", "-i", "d", "--model", "gausian"}}) {
    Options options;
    EXPECT_EQ(parse(args, options), 2) << testing::PrintToString(args);
  }
  EXPECT_THAT(parsed({"replay", "-i", "d", "--mode", "h200,cpu@1"}).mode, "h200,cpu@1");
  refuse({"replay", "-i", "d", "--mode", "h200.by_net:test-a"}, "replay takes devices only");
  refuse({"replay", "-i", "d", "--mode", "network-a"}, "replay takes devices only");
}

}  // namespace
}  // namespace sluice::predictor
