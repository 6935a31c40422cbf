// `sluice opbench run` and `space` with a stand-in for TVM. Prevents: results that are not those of
// the measured programs, files that published tools cannot read, and errors without a line for the
// user.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>
#include <sstream>

#include "base/output.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "tests/profiler/run_fixture.hpp"

namespace sluice::profiler {
namespace {

using test::read_file;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(OpbenchRun, FindsTheBestProgramAndWritesThePublishedFiles) {
  const auto ran = opbench({"run", "--modelname", "net", "--target", "llvm", "--tuner",
                            "gridsearch", "--trials", "84", "--out", "out"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  // Two tasks, one of them twice, 1 ms each at best; the first program that runs is number 1.
  EXPECT_THAT(ran.out, HasSubstr("tuned: {'mean': 3, 'median': 3, 'std': 0} ms"));
  EXPECT_THAT(ran.out, HasSubstr("without tuning: {'mean': 123, 'median': 123, 'std': 0} ms"));

  const auto best = read_records(file("out/Performance/net-gridsearch-llvm-autotvm.json")).records;
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0].index, 41U);
  EXPECT_EQ(best[0].details->device, "cpu@1");
  const auto all =
      read_records(file("out/Performance/net-gridsearch-llvm-autotvm.json.tmp")).records;
  ASSERT_EQ(all.size(), 2U * 67U) << "17 of 84 indices are refused, which is no trial";
  EXPECT_EQ(all[0].index, 1U);
  EXPECT_EQ(all[0].details->device, "cpu@1");
  EXPECT_EQ(all[5].index, 7U);
  EXPECT_EQ(all[5].error, MeasureError::kWrongAnswer);
  EXPECT_EQ(all[66].index, 83U);

  const std::string latencies = read_file(file("out/latency.csv"));
  EXPECT_THAT(latencies, StartsWith("modelname,batchsize,target,device,tuner,seed,programs,trials,"
                                    "ms\nnet,1,llvm,cpu@1,gridsearch,0,tuned,0,123\n"));
  // The 32nd trial has index 39, 3 ms; two of three calls are of the first task.
  EXPECT_THAT(latencies, HasSubstr("tuned,32,9\n"));
  EXPECT_THAT(latencies, HasSubstr("tuned,64,3\nnet,1,llvm,cpu@1,gridsearch,0,tuned,67,3\n"));

  const std::string costs = read_file(file("out/op_costs/net_gridsearch_llvm/0.csv"));
  EXPECT_THAT(costs, StartsWith("task_name,trial,costs,all_cost,best_cost,best_all_cost,cmp\n"
                                "fused_a,0,0.041,"));
  EXPECT_THAT(costs, HasSubstr("\nfused_a,32,0.001,"));
  EXPECT_EQ(read_file(file("out/partial_res/llvm.csv")),
            "modelname,tuner,0,100,300,500,1000,3000\nnet,gridsearch,123,,,,,\n")
      << "no figures for trials that there were not";
  EXPECT_THAT(read_file(file("out/ConfigSpace/net-llvm.json")), HasSubstr("2 x fused_a"));
}

TEST_F(OpbenchRun, MakesAsManyProgramsAsWantedAlsoWhereSomeAreRefused) {
  const auto ran = opbench(
      {"run", "--modelname", "net", "--tuner", "gridsearch", "--trials", "9", "--out", "out"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto all =
      read_records(file("out/Performance/net-gridsearch-llvm-autotvm.json.tmp")).records;
  ASSERT_EQ(all.size(), 2U * 9U);
  EXPECT_EQ(all[8].index, 11U) << "without 0, 5 and 10";
}

TEST_F(OpbenchRun, SeveralServersMakeTheSamePrograms) {
  for (const char* const jobs : {"1", "3"}) {
    const auto ran = opbench({"run", "--modelname", "net", "--tuner", "gridsearch", "--trials",
                              "60", "--out", jobs, "-j", jobs});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("tuned: {'mean': 3,"))
        << "program 43 ends a server, and all know the tasks again";
  }
  const auto costs = [&](const std::string& jobs) {
    std::vector<std::pair<std::uint64_t, double>> found;
    const std::string records = "/Performance/net-gridsearch-llvm-autotvm.json.tmp";
    for (const Record& record : read_records(file(jobs + records)).records) {
      found.emplace_back(record.index, record.good() ? record.cost() : 0);
    }
    return found;
  };
  EXPECT_EQ(costs("1"), costs("3"));
}

TEST_F(OpbenchRun, AsManyServersAsAreWanted) {
  const std::vector<std::string> run{"run",      "--modelname", "counted", "--tuner", "gridsearch",
                                     "--trials", "1",           "--out",   "out"};
  ASSERT_EQ(opbench(run).exit_code, 0);
  EXPECT_EQ(servers(), "imports\n") << "others would disturb the times on a CPU";
  auto several = run;
  several.insert(several.end(), {"-j", "3"});
  ASSERT_EQ(opbench(several).exit_code, 0);
  EXPECT_EQ(servers(), "imports\nimports\nloads\nloads\n");
}

// Importing a large network takes minutes.
TEST_F(OpbenchRun, AServerThatEndedLoadsTheTasksThatAnotherImported) {
  const auto ran = opbench({"run", "--modelname", "counted", "--tuner", "gridsearch", "--trials",
                            "40", "--out", "out", "-j", "3"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(servers(), "imports\nloads\nloads\nloads\nloads\n")
      << "program 43 of each task ends one server";
}

TEST_F(OpbenchRun, TasksThatCannotBeLoadedAreNoFaultOfThePrograms) {
  const auto ran = opbench({"run", "--modelname", "once", "--tuner", "gridsearch", "--trials", "84",
                            "--out", "out", "-j", "2"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("sluice opbench: sluice programs: once: a second time\n"));
  EXPECT_THAT(ran.err, Not(HasSubstr("program aaaaaaaa00000044"))) << "the one after the last";
}

TEST_F(OpbenchRun, AFewProgramsThatEndTheServerAreLeftOut) {
  const std::vector<std::string> run{"run",   "--modelname", "fatal", "--tuner", "gridsearch",
                                     "--out", "out",         "-j",    "2",       "--trials"};
  auto few = run;
  few.emplace_back("9");
  const auto ran = opbench(few);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string records = file("out/Performance/fatal-gridsearch-llvm-autotvm.json.tmp");
  std::vector<std::uint64_t> made;
  for (const Record& record : read_records(records).records) made.push_back(record.index);
  EXPECT_THAT(std::span(made).subspan(9), testing::ElementsAre(1, 2, 3, 4, 6, 8, 11, 12, 13));
  EXPECT_THAT(ran.err, HasSubstr("\"indices\":[7]"));
  // Each program that ends a server does so twice: the second time it is alone.
  std::istringstream asked(read_file(file("asked")));
  const std::vector<int> indices{std::istream_iterator<int>(asked), {}};
  EXPECT_EQ(std::ranges::count(indices, 7), 2);
  EXPECT_EQ(std::ranges::count(indices, 6), 1) << "the others are made once";

  auto all = run;
  all.emplace_back("84");
  const auto ended = opbench(all);
  EXPECT_EQ(ended.exit_code, 1) << "when all end it, the cause is another";
  EXPECT_THAT(ended.err, HasSubstr("sluice opbench: sluice programs exited with 4 during apply"));
  EXPECT_THAT(ended.err, HasSubstr("\"indices\":[60]"));
  EXPECT_THAT(ended.err, Not(HasSubstr("\"indices\":[61]")));
}

TEST_F(OpbenchRun, ATaskWithoutAProgramThatRunsIsNamed) {
  const auto ran = opbench(
      {"run", "--modelname", "refused", "--tuner", "gridsearch", "--trials", "9", "--out", "out"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("because no program was found that runs: fused_r\n"));
  EXPECT_THAT(ran.out, HasSubstr("tuned: none, because a task has no program that runs\n"));
  EXPECT_THAT(ran.out, HasSubstr("without tuning: none,"));
  EXPECT_THAT(ran.out, Not(HasSubstr("inf")));
  EXPECT_EQ(
      read_records(file("out/Performance/refused-gridsearch-llvm-autotvm.json")).records.size(), 1U)
      << "what was measured is kept";
}

TEST_F(OpbenchRun, ANetworkWithoutTasksHasNoLatency) {
  const auto ran = opbench({"run", "--modelname", "empty", "--out", "out"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "sluice opbench: empty has no operator to tune\n");
  EXPECT_EQ(ran.out, "empty: 0 tasks, 0 calls\n");
}

TEST_F(OpbenchRun, FalseIsReallyFalse) {
  const auto ran = opbench({"run", "--modelname", "net", "--iftune", "false", "--out", "out"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, Not(HasSubstr("tuned:")));
  EXPECT_FALSE(std::filesystem::exists(file("out/partial_res")));
  const auto alone = opbench({"run", "--modelname", "net", "--ifcompare", "false", "--trials", "8",
                              "--tuner", "random", "--out", "out2"});
  EXPECT_THAT(alone.out, Not(HasSubstr("without tuning")));
  EXPECT_EQ(opbench({"run", "--modelname", "net", "--iftune", "maybe"}).exit_code, 2);
}

TEST_F(OpbenchRun, AnotherRunBeginsAnew) {
  for (int run = 0; run < 2; ++run) {
    ASSERT_EQ(opbench({"run", "--modelname", "net", "--tuner", "gridsearch", "--trials", "8",
                       "--out", "out"})
                  .exit_code,
              0);
  }
  EXPECT_EQ(
      read_records(file("out/Performance/net-gridsearch-llvm-autotvm.json.tmp")).records.size(),
      16U);
  ASSERT_EQ(opbench({"run", "--modelname", "net", "--iftune", "false", "--tuner", "gridsearch",
                     "--out", "out"})
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::exists(file("out/Performance/net-random-llvm-autotvm.json")))
      << "its programs are random";
}

TEST_F(OpbenchRun, FeaturesOfTheServerReachTheTuner) {
  const auto ran = opbench(
      {"run", "--modelname", "large", "--tuner", "xgb_itervar", "--trials", "128", "--out", "out"});
  if (ran.err.find("built without XGBoost") != std::string::npos) GTEST_SKIP() << ran.err;
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto all =
      read_records(file("out/Performance/large-xgb_itervar-llvm-autotvm.json.tmp")).records;
  ASSERT_EQ(all.size(), 2U * 128U);
  const auto count = [](std::span<const Record> round, auto&& matches) {
    return std::ranges::count_if(round, matches);
  };
  for (const std::size_t task : {0U, 1U}) {
    // The first round of a task is random. For the second the tuner knows of a program only its
    // features, which are its index.
    const std::span first(all.begin() + static_cast<std::ptrdiff_t>(task * 128), 64);
    const std::span second(all.begin() + static_cast<std::ptrdiff_t>(task * 128 + 64), 64);
    const auto fast = [](const Record& record) { return record.index < 840; };
    EXPECT_LT(count(first, fast), 20) << "a tenth of the space";
    EXPECT_GT(count(second, fast), 50);
  }
}

TEST_F(OpbenchRun, ResumesOnlyTheTrialsOfItsDevice) {
  const auto run = [&](const std::string& threads) {
    return opbench({"run", "--modelname", "net", "--target", "llvm", "--tuner", "gridsearch",
                    "--trials", "84", "--out", "out", "--resume", "--threads", threads});
  };
  EXPECT_THAT(run("1").out, HasSubstr("tuned: {'mean': 3,"));
  EXPECT_THAT(run("2").out, HasSubstr("tuned: {'mean': 1.5,")) << "a second thread halves the time";
  const auto records =
      read_records(file("out/Performance/net-gridsearch-llvm-autotvm.json.tmp")).records.size();
  EXPECT_THAT(run("2").out, HasSubstr("tuned: {'mean': 1.5,"));
  EXPECT_EQ(
      read_records(file("out/Performance/net-gridsearch-llvm-autotvm.json.tmp")).records.size(),
      records)
      << "nothing is measured again";
}

TEST_F(OpbenchRun, TwoRunsDoNotWriteToOneFolder) {
  std::filesystem::create_directory(file("out"));
  const base::FolderLock other(file("out"), "sluice opbench run");
  const auto refused = opbench({"run", "--modelname", "net", "--target", "llvm", "--out", "out"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("out is in use by another `sluice opbench run`, pid "));
}

TEST_F(OpbenchRun, OutlivesAProgramThatEndsTheServer) {
  const auto ran = opbench(
      {"run", "--modelname", "net", "--tuner", "gridsearch", "--trials", "60", "--out", "out"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("tuned: {'mean': 3,")) << "41 of both tasks";
}

TEST_F(OpbenchRun, TheSpaceIsWrittenAsText) {
  const auto ran = opbench({"space", "--modelname", "net", "-o", "space.txt"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(read_file(file("space.txt")),
              HasSubstr("ConfigSpace (len=84, space_map=\n   0 tile_0: Split(policy=factors, "
                        "product=64, num_outputs=2) len=7\n"));
}

TEST_F(OpbenchRun, TheReportIsMadeByItsOwnProgram) {
  const auto ran =
      opbench({"run", "--modelname", "net", "--trials", "8", "--tuner", "random", "--out", "out"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto report = opbench({"report", "out", "--json"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(report.out, StartsWith(R"({"devices": [{"device": "cpu@1", "records": )"));
}

TEST_F(OpbenchRun, AMachineWithoutADriverIsNamed) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  // Importing a large network takes minutes.
  const auto ran = opbench({"run", "--modelname", "counted", "--target", "cuda"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(file("servers"))) << "the network was imported";
  EXPECT_THAT(ran.err,
              StartsWith("sluice opbench: no NVIDIA driver found (libcuda.so.1): use a machine"));
  EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
}

TEST_F(OpbenchRun, ErrorsAreOneLine) {
  const auto broken = opbench({"run", "--modelname", "broken"});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_EQ(broken.err, "sluice opbench: sluice programs: broken: not a network\n");
  const auto target = opbench({"run", "--modelname", "net", "--target", "fpga"});
  EXPECT_EQ(target.exit_code, 2);
  EXPECT_THAT(target.err, HasSubstr("--target: 'fpga'; there are llvm, cuda and cuda:sm_NN"));
  const auto tuner = opbench({"run", "--modelname", "net", "--tuner", "best"});
  EXPECT_EQ(tuner.exit_code, 2);
  const auto predict = opbench({"run", "--modelname", "net", "--tuner", "predict"});
  EXPECT_EQ(predict.exit_code, 2);
  EXPECT_THAT(predict.err, HasSubstr("--tuner predict is for GPUs"));
}

}  // namespace
}  // namespace sluice::profiler
