#include "server/workload/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"

namespace sluice::server::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Options parsed(std::vector<const char*> args) {
  args.insert(args.begin(), "sluice-hybrid_workload");
  Options options;
  const auto exit_code =
      parse_workload_options(static_cast<int>(args.size()), args.data(), options);
  EXPECT_FALSE(exit_code) << "exit code " << *exit_code;
  return options;
}

std::string fault(const std::vector<const char*>& args) {
  try {
    (void)parsed(args);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "no fault";
}

TEST(WorkloadOptions, PublishedCommandLineIsTaken) {
  const Options options = parsed({"--infer",
                                  "--infer-model",
                                  "mnist",
                                  "resnet152-p[2]",
                                  "--no-train",
                                  "--train-model",
                                  "resnet",
                                  "--num-epoch",
                                  "5",
                                  "--batch-size",
                                  "32",
                                  "-d",
                                  "60",
                                  "-c",
                                  "20",
                                  "-l",
                                  "log.txt",
                                  "-v",
                                  "1",
                                  "--show-result",
                                  "-5",
                                  "-p",
                                  "8082",
                                  "--poisson",
                                  "resnet152=30",
                                  "--interval",
                                  "mnist=100",
                                  "--change-time-point",
                                  "resnet152=10,20",
                                  "--dynamic-concurrency",
                                  "mnist",
                                  "1",
                                  "2",
                                  "3",
                                  "--seed",
                                  "42"});
  EXPECT_THAT(options.infer_models, ElementsAre("mnist", "resnet152-p[2]"));
  EXPECT_EQ(options.duration_s, 60);
  EXPECT_EQ(options.concurrency, 20U);
  EXPECT_EQ(options.log_file, "log.txt");
  EXPECT_EQ(options.verbose, 1);
  EXPECT_EQ(options.show_result, -5);
  EXPECT_EQ(options.port, 8082);
  EXPECT_THAT(options.poisson, ElementsAre(Pair("resnet152", ElementsAre(30))));
  EXPECT_THAT(options.interval_ms, ElementsAre(Pair("mnist", ElementsAre(100))));
  EXPECT_THAT(options.change_s, ElementsAre(Pair("resnet152", ElementsAre(10, 20))));
  EXPECT_THAT(options.dynamic_concurrency, ElementsAre(Pair("mnist", ElementsAre(1, 2, 3))));
  EXPECT_EQ(options.seed, 42U);
}

TEST(WorkloadOptions, DefaultsAreThePublishedOnes) {
  const Options options = parsed({"--infer-model", "m"});
  EXPECT_EQ(options.duration_s, 10);
  EXPECT_FALSE(options.count);
  EXPECT_EQ(options.concurrency, 10U);
  EXPECT_EQ(options.port, 8080);
  EXPECT_EQ(options.verbose, 0);
  EXPECT_EQ(parsed({"--infer-model", "m", "--http"}).port, 8081);
  EXPECT_EQ(parsed({"--infer-model", "m", "-v"}).verbose, 1);
}

TEST(WorkloadOptions, WithGapsTheRunHasACountUnlessItHasATime) {
  Options options = parsed({"--infer-model", "m", "--lambda", "105"});
  EXPECT_EQ(options.count, 1000U);
  EXPECT_FALSE(options.duration_s);
  EXPECT_EQ(parsed({"--infer-model", "m", "--lambda-of", "m=105"}).count, 1000U);
  options = parsed({"--infer-model", "m", "--lambda", "105", "-d", "3"});
  EXPECT_FALSE(options.count);
  EXPECT_EQ(options.duration_s, 3);
  // A file has its own end.
  options = parsed({"--trace", "t.csv"});
  EXPECT_FALSE(options.count || options.duration_s);
}

TEST(WorkloadOptions, TrainingIsThatOfTheTrainModelsUnlessRefused) {
  const Options options = parsed({"--infer-model", "m", "--train-model", "swin_b,resnet",
                                  "--num-epoch", "3", "--batch-size", "8"});
  EXPECT_THAT(options.train_models, ElementsAre("swin_b", "resnet"));
  EXPECT_EQ(options.num_epoch, 3);
  EXPECT_EQ(options.train_batch_size, 8);
  EXPECT_THAT(parsed({"--infer-model", "m", "--no-train", "--train-model", "a"}).train_models,
              ElementsAre());
  EXPECT_EQ(fault({"--infer-model", "m", "--train"}), "no fault");
  EXPECT_EQ(fault({"--infer-model", "m", "--train-model", "a", "--http"}),
            "--train-model: training jobs are sent by gRPC; leave out --http");
}

TEST(WorkloadOptions, TrainingAloneLastsUntilItsJobHasEnded) {
  const Options options = parsed({"--no-infer", "--train-model", "swin_b"});
  EXPECT_FALSE(options.infer || options.duration_s || options.count);
  EXPECT_EQ(parsed({"--no-infer", "--train-model", "a", "-d", "3"}).duration_s, 3);
}

TEST(WorkloadOptions, NothingToDoIsAMistake) {
  EXPECT_EQ(fault({}), "no models: give --infer-model LIST or --trace FILE");
  EXPECT_EQ(fault({"--no-infer"}), "--no-infer: nothing to do without --train-model LIST");
}

// Prevents: a run whose arrivals are not those that the user asked for, and a crash on --benchmark.
TEST(WorkloadOptions, ATraceHasNoOtherArrivals) {
  const std::vector<std::vector<const char*>> others{
      {"--infer-model", "m"},
      {"-c", "3"},
      {"--interval", "m=1"},
      {"--poisson", "m=5"},
      {"--change-time-point", "m=1"},
      {"--dynamic-concurrency", "m=1"},
      {"--dynamic-poisson", "m=1"},
      {"--benchmark", "--random-dynamic-poisson", "5"},
      {"--lambda", "5"},
      {"--lambda-of", "m=5"},
      {"--arrival", "poisson"}};
  for (const auto& other : others) {
    std::vector<const char*> args{"sluice-hybrid_workload", "--trace", "t.csv"};
    args.insert(args.end(), other.begin(), other.end());
    Options options;
    testing::internal::CaptureStderr();
    const auto exit_code =
        parse_workload_options(static_cast<int>(args.size()), args.data(), options);
    const std::string err = testing::internal::GetCapturedStderr();
    EXPECT_EQ(exit_code, base::kExitUsage) << other[0];
    EXPECT_THAT(err, HasSubstr("--trace"));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  }
  const Options options = parsed({"--trace", "t.csv", "-d", "3", "--count", "9", "--seed", "2"});
  EXPECT_EQ(options.count, 9U);
}

TEST(WorkloadOptions, ValuesByModelTakeBothForms) {
  EXPECT_THAT(parse_by_model("--x", {"a=1", "2", "b=3"}),
              ElementsAre(Pair("a", ElementsAre(1, 2)), Pair("b", ElementsAre(3))));
  EXPECT_THAT(parse_by_model("--x", {"a", "1", "2", "b-1", "3"}),
              ElementsAre(Pair("a", ElementsAre(1, 2)), Pair("b-1", ElementsAre(3))));
  EXPECT_THAT(parse_by_model("--x", {"a=0", "1e9"}), ElementsAre(Pair("a", ElementsAre(0, 1e9))));
}

TEST(WorkloadOptions, ValuesByModelNameWhatIsWrong) {
  auto by_model_fault = [](const std::vector<std::string>& words) -> std::string {
    try {
      (void)parse_by_model("--poisson", words);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "no fault";
  };
  EXPECT_EQ(by_model_fault({"5"}), "--poisson: found '5', allowed: MODEL=NUMBER");
  EXPECT_EQ(by_model_fault({"a=fast"}), "--poisson: found 'a=fast', allowed: MODEL=NUMBER");
  EXPECT_EQ(by_model_fault({"a=-5"}), "--poisson: found 'a=-5', allowed: MODEL=NUMBER");
  EXPECT_EQ(by_model_fault({"a=1.1e9"}), "--poisson: found 'a=1.1e9', allowed: MODEL=NUMBER");
  EXPECT_EQ(by_model_fault({"a=nan"}), "--poisson: found 'a=nan', allowed: MODEL=NUMBER");
  EXPECT_EQ(by_model_fault({"=5"}), "--poisson: found '=5', allowed: MODEL=NUMBER");
  EXPECT_EQ(by_model_fault({"a"}), "--poisson: found 'a', allowed: MODEL=NUMBER");
}

}  // namespace
}  // namespace sluice::server::workload
