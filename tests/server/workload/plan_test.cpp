#include "server/workload/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options with_models(std::vector<std::string> models) {
  Options options;
  options.infer_models = std::move(models);
  return options;
}

std::vector<std::string> names(const std::vector<Worker>& workers) {
  std::vector<std::string> list;
  for (const Worker& worker : workers) list.push_back(worker.model);
  return list;
}

std::string fault(const Options& options) {
  try {
    (void)plan(options);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "no fault";
}

const ClosedLoop& closed(const Worker& worker) { return std::get<ClosedLoop>(worker.law); }
const Steps<double>& rates(const Worker& worker) {
  return std::get<TickedPoisson>(worker.law).rate_per_s;
}

TEST(Plan, PlainNameIsAClosedLoop) {
  Options options = with_models({"a", "b"});
  options.concurrency = 4;
  options.interval_ms["b"] = {20};
  const auto workers = plan(options);
  EXPECT_EQ(closed(workers[0]).outstanding.at(0), 4U);
  EXPECT_EQ(closed(workers[0]).interval_ms, 0);
  EXPECT_EQ(closed(workers[1]).interval_ms, 20);
}

TEST(Plan, ReplicasAreNamedAsTheServerNamesThem) {
  EXPECT_THAT(names(plan(with_models({"resnet152[3]"}))),
              ElementsAre("resnet152", "resnet152-1", "resnet152-2"));
  EXPECT_THAT(names(plan(with_models({"m[1]"}))), ElementsAre("m"));
}

TEST(Plan, OnlyTheSuffixesOfALawAreNoPartOfTheName) {
  EXPECT_THAT(names(plan(with_models({"resnet50_b1", "m-1", "a-b", "x-pp"}))),
              ElementsAre("resnet50_b1", "m-1", "a-b", "x-pp"));
}

TEST(Plan, SuffixPicksTheLaw) {
  Options options = with_models({"a-p", "b-d", "c-dp"});
  options.poisson["a"] = {50};
  options.change_s = {{"b", {10}}, {"c", {5, 6}}};
  options.dynamic_concurrency["b"] = {2, 8};
  options.dynamic_poisson["c"] = {1, 0, 3};
  const auto workers = plan(options);
  EXPECT_EQ(rates(workers[0]).at(99), 50);
  EXPECT_EQ(closed(workers[1]).outstanding.at(9.9), 2U);
  EXPECT_EQ(closed(workers[1]).outstanding.at(10), 8U);
  EXPECT_THAT(rates(workers[2]).values, ElementsAre(1, 0, 3));
}

TEST(Plan, ReplicasTakeTheValuesOfTheirFamilyUnlessTheyHaveTheirOwn) {
  Options options = with_models({"a-p[3]"});
  options.poisson = {{"a", {50}}, {"a-2", {7}}};
  const auto workers = plan(options);
  EXPECT_EQ(rates(workers[0]).at(0), 50);
  EXPECT_EQ(rates(workers[1]).at(0), 50);
  EXPECT_EQ(rates(workers[2]).at(0), 7);
}

TEST(Plan, LambdaMakesAnOpenLoopAndZeroSwitchesAModelOff) {
  Options options = with_models({"a", "b", "c"});
  options.lambda_ms = 105;
  options.lambda_of_ms = {{"b", {150}}, {"c", {0}}};
  auto workers = plan(options);
  EXPECT_THAT(names(workers), ElementsAre("a", "b"));
  EXPECT_EQ(std::get<NearPeriodic>(workers[0].law).mean_ms, 105);
  EXPECT_EQ(std::get<NearPeriodic>(workers[1].law).mean_ms, 150);
  options.near_periodic = false;
  workers = plan(options);
  EXPECT_EQ(std::get<Poisson>(workers[1].law).mean_ms, 150);
}

TEST(Plan, FaultsNameOptionAndModel) {
  EXPECT_EQ(fault(with_models({"a-p"})), "a-p needs --poisson a=...");
  EXPECT_EQ(fault(with_models({"a", "a"})), "--infer-model: 'a' is given twice");
  EXPECT_THAT(fault(with_models({"a[0]"})), HasSubstr("found 'a[0]'"));
  EXPECT_THAT(fault(with_models({"a[1001]"})), HasSubstr("allowed: m[1] to m[1000]"));
  EXPECT_THAT(fault(with_models({"a[2][3]"})), HasSubstr("allowed: m[1] to m[1000]"));

  Options options = with_models({"a-dp"});
  options.change_s["a"] = {10, 20};
  options.dynamic_poisson["a"] = {1, 2};
  EXPECT_EQ(fault(options), "--dynamic-poisson a: found 2 values for 2 changes, allowed: 3");
  options.dynamic_poisson["a"] = {1, 2, 0.0001};
  EXPECT_EQ(fault(options), "--dynamic-poisson a: found 0.0001, allowed: 0, or 0.001 and more");
  options.dynamic_poisson["a"] = {1, 2, 3};
  options.change_s["a"] = {20, 10};
  EXPECT_EQ(fault(options), "--change-time-point a: the times must ascend");

  options = with_models({"a-d"});
  options.change_s["a"] = {10};
  options.dynamic_concurrency["a"] = {1, 2.5};
  EXPECT_THAT(fault(options), HasSubstr("found 2.5, allowed: whole numbers"));

  options = with_models({"a"});
  options.lambda_of_ms["a"] = {0};
  EXPECT_EQ(fault(options), "--lambda-of switches every model off");
}

// Prevents: a value that changes nothing, because the name of its model is misspelt.
TEST(Plan, ValuesOfUnknownModelsAreRefused) {
  const std::map<std::string, ByModel Options::*> all{
      {"--poisson", &Options::poisson},
      {"--interval", &Options::interval_ms},
      {"--change-time-point", &Options::change_s},
      {"--dynamic-concurrency", &Options::dynamic_concurrency},
      {"--dynamic-poisson", &Options::dynamic_poisson},
      {"--lambda-of", &Options::lambda_of_ms}};
  for (const auto& [name, values] : all) {
    Options options = with_models({"a[2]"});
    (options.*values)["a-1"] = {3};
    EXPECT_EQ(fault(options), "no fault") << name;
    (options.*values)["resnet"] = {3};
    EXPECT_EQ(fault(options), name + ": 'resnet' is not in --infer-model");
  }
}

// Prevents: an option of the command line that never reaches the load.
TEST(Plan, LoadHasTheOptionsOfTheCommandLine) {
  Options options;
  options.duration_s = 3;
  options.count = 4;
  options.max_outstanding = 5;
  options.seed = 6;
  EXPECT_FALSE(load_options(options).announce_ns);
  options.announce_ms = 1.5;
  const LoadOptions load = load_options(options);
  EXPECT_EQ(load.duration_s, 3);
  EXPECT_EQ(load.count, 4U);
  EXPECT_EQ(load.max_outstanding, 5U);
  EXPECT_EQ(load.seed, 6U);
  EXPECT_EQ(load.announce_ns, 1'500'000U);
}

Options benchmark_of(std::uint32_t seed) {
  Options options = with_models({"m[8]"});
  options.random_dynamic_poisson = 100;
  options.change_s["benchmark"] = {1, 2, 3, 4, 5, 6, 7, 8};
  options.seed = seed;
  return options;
}

TEST(Plan, BenchmarkSplitsARandomTotalOverRandomModels) {
  const auto workers = plan(benchmark_of(3));
  ASSERT_EQ(workers.size(), 8U);
  std::size_t silent = 0;
  double most = 0;
  for (std::size_t period = 0; period <= 8; ++period) {
    double total = 0;
    for (const Worker& worker : workers) {
      const double rate = rates(worker).values.at(period);
      total += rate;
      silent += rate == 0 ? 1 : 0;
    }
    // Nothing is sent in the first period.
    EXPECT_LE(total, period == 0 ? 0 : 100.0001);
    most = std::max(most, total);
  }
  EXPECT_GT(most, 20);
  EXPECT_GT(silent, 8U + 8U) << "only a part of the models has requests in a period";
  EXPECT_EQ(describe_benchmark(workers), describe_benchmark(plan(benchmark_of(3))));
  EXPECT_NE(describe_benchmark(workers), describe_benchmark(plan(benchmark_of(4))));
}

TEST(Plan, BenchmarkNeedsItsTimes) {
  Options options = with_models({"m"});
  options.random_dynamic_poisson = 100;
  EXPECT_EQ(fault(options), "--benchmark needs --change-time-point benchmark=...");
}

std::vector<Worker> traced(const std::string& text) {
  const test::TempFolder folder;
  Options options;
  options.trace_file = folder.write("trace.csv", text);
  return plan(options);
}

TEST(Plan, TraceGivesEachModelItsTimes) {
  const auto workers = traced("due_ms,model,more\n10.5,b,x\n2,a\n\n7,b\r\n0.001,b\n");
  EXPECT_THAT(names(workers), ElementsAre("a", "b"));
  EXPECT_THAT(std::get<Replay>(workers[0].law).due_ns, ElementsAre(2'000'000));
  EXPECT_THAT(std::get<Replay>(workers[1].law).due_ns, ElementsAre(1000, 7'000'000, 10'500'000));
}

TEST(Plan, TraceOfAPublishedReportIsTaken) {
  const auto workers = traced(
      "=====\n|  InferWorker a (6 sec)  |\n| cnt: 2 |\n=====\n"
      "[InferWorker TRACE a] request_time(ms), response_time(ms), latency(ms)\n"
      "10.5, 20.0, 9.5\n2.0, 9.0, 7.0\n"
      "=====\n|  InferWorker b-1 (6 sec)  |\n=====\n"
      "[InferWorker TRACE b-1] request_time(ms), response_time(ms), latency(ms)\n7.0, 8.0, 1.0\n"
      "[TrainWorker c] cnt 1 | ltc.avg 1.00sec | thpt 1.00job/s\n");
  EXPECT_THAT(names(workers), ElementsAre("a", "b-1"));
  EXPECT_THAT(std::get<Replay>(workers[0].law).due_ns, ElementsAre(2'000'000, 10'500'000));
  EXPECT_THAT(std::get<Replay>(workers[1].law).due_ns, ElementsAre(7'000'000));
}

std::string trace_fault(const std::string& text) {
  try {
    (void)traced(text);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "no fault";
}

TEST(Plan, TraceFaultsNameTheLine) {
  EXPECT_THAT(trace_fault("1,a\nsoon,a\n"), HasSubstr("trace.csv:2: found 'soon,a'"));
  EXPECT_THAT(trace_fault("1,a\n-1,a\n"), HasSubstr("trace.csv:2: found '-1,a'"));
  EXPECT_THAT(trace_fault("1,a\n3\n"), HasSubstr("trace.csv:2: found '3'"));
  EXPECT_THAT(trace_fault("1,a\nnan,a\n"), HasSubstr("trace.csv:2"));
  EXPECT_THAT(trace_fault("time,model\n"), HasSubstr("no arrivals"));
  Options options;
  options.trace_file = "/nowhere/trace.csv";
  EXPECT_EQ(fault(options), "--trace /nowhere/trace.csv: No such file or directory");
}

}  // namespace
}  // namespace sluice::server::workload
