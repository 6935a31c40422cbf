// `sluice opbench run` and `space` with a stand-in for TVM. Prevents: results that are not those of
// the measured programs, files that published tools cannot read, and errors without a line for the
// user.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "base/folder_lock.hpp"
#include "profiler/pack.hpp"
#include "profiler/record.hpp"
#include "profiler/worker_pool.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using test::Process;
using test::read_file;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class OpbenchRun : public testing::Test {
 protected:
  base::Captured opbench(std::vector<std::string> args) {
    args.insert(args.begin(), {SLUICE_TEST_PROGRAM, "opbench"});
    return Process(args, {.environment = {"SLUICE_TVM_PYTHON=" SLUICE_TEST_FAKE_PROGRAMS},
                          .folder = folder_.path()})
        .finish();
  }

  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  /// How each server came to know the network `counted`.
  [[nodiscard]] std::string servers() const { return read_file(file("servers")); }

  const test::TempFolder folder_;
};

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

TEST_F(OpbenchRun, ASweepOfThreadsTimesTheFastestProgramWithEachNumber) {
  if (processors() < 2) GTEST_SKIP() << "one processor";
  const std::vector<std::string> sweep{"sweep", "threads",       "--modelname",
                                       "net",   "--programs",    "84",
                                       "-o",    "threads.jsonl", "--threads"};
  const auto with = [&](const char* threads) {
    auto args = sweep;
    args.emplace_back(threads);
    return opbench(args);
  };
  // A number that the machine does not have takes no other number along.
  const auto ran = with("1024,1,2,1023");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, StartsWith(fmt::format("sluice opbench: --threads 1024,1023: this machine "
                                              "has {} processors: left out\n",
                                              processors())));
  EXPECT_THAT(ran.out, HasSubstr("fused_a: threads 2; 1: 1000.0 us, 2: 500.0 us\n"));
  EXPECT_THAT(read_file(file("sweep.csv")), HasSubstr("threads,bbbbbbbbbbbbbbbb,fused_b,2,"));
  EXPECT_EQ(with("1024").exit_code, 2);
}

TEST_F(OpbenchRun, ASweepOfThreadsEndsAtTheProcessors) {
  const auto ran = opbench({"sweep", "threads", "--modelname", "net", "--programs", "84"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, Not(HasSubstr("left out")));
  EXPECT_THAT(read_file(file("sweep.csv")),
              HasSubstr(fmt::format("threads,bbbbbbbbbbbbbbbb,fused_b,{},", processors())));
}

/// A pack for CPUs: tasks a and b of the stand-in's network, and one that it does not make.
class OpbenchMeasureCpu : public OpbenchRun {
 protected:
  void write_pack(const std::string& target = "llvm", const std::string& network_name = "net") {
    PackWriter pack(file("cpu.programs"));
    pack.add(PackHeader{target, "0.27.0", "0", 0});
    Network network;
    network.name = network_name;
    for (const char* const task : {"a", "b", "c"}) {
      network.calls.push_back({id_of(task), {}});
      pack.add(Task{.id = id_of(task), .name = task, .buffers = {{{16}, "float32", true}}});
    }
    pack.add(network);
    for (const std::uint64_t index : {41U, 43U, 44U, 45U, 46U, 49U}) add(pack, "a", index);
    add(pack, "b", 48);
    add(pack, "c", 41);  // of a task that the server does not make
    pack.close();
  }

  base::Captured measure(std::vector<std::string> args) {
    args.insert(args.begin(), {"measure", "cpu.programs", "-o", "cpu.jsonl"});
    return opbench(args);
  }

  /// The last record of a program.
  [[nodiscard]] Record record(const std::string& program, const std::string& device) const {
    Record found;
    for (const Record& record : read_records(file("cpu.jsonl")).records) {
      const RecordDetails& details = record.details.value();
      if (details.program == program && details.device == device) found = record;
    }
    return found;
  }

 private:
  static std::string id_of(const std::string& task) {
    std::string id;
    while (id.size() < 16) id += task;
    return id;
  }
  static void add(PackWriter& pack, const std::string& task, std::uint64_t index) {
    pack.add(Program{.id = task + std::to_string(index), .task = id_of(task), .index = index});
  }
};

TEST_F(OpbenchMeasureCpu, MeasuresWithEachNumberOfThreadsAndOutlivesTheServer) {
  write_pack();
  const auto ran = measure({"--threads", "1,2"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("14 new records"));
  EXPECT_THAT(ran.out, HasSubstr("6 good, 2 disturbed, 2 failed while they ran, 2 wrong result, "
                                 "2 ran too long; 0 known"));
  EXPECT_THAT(ran.err, HasSubstr("program a43: sluice programs"));
  EXPECT_THAT(ran.err, HasSubstr("2 programs cannot be made")) << "task c, with both numbers";
  EXPECT_THAT(ran.err, HasSubstr("2 records are no labels, because something else used the machine "
                                 "meanwhile (disturbed). Run the same command again"));
  EXPECT_DOUBLE_EQ(record("a41", "cpu@1").cost(), 1e-3);
  EXPECT_DOUBLE_EQ(record("a41", "cpu@2").cost(), 5e-4);
  EXPECT_EQ(record("a41", "cpu@2").details->threads, 2);
  EXPECT_EQ(record("a43", "cpu@1").error, MeasureError::kRuntimeDevice);
  EXPECT_EQ(record("a44", "cpu@1").error, MeasureError::kRunTimeout);
  EXPECT_TRUE(record("a45", "cpu@1").good()) << "measured again, it does not vary";
  EXPECT_DOUBLE_EQ(record("a45", "cpu@1").details->spread, 1);
  EXPECT_TRUE(record("a46", "cpu@1").details->disturbed);
  EXPECT_DOUBLE_EQ(record("a46", "cpu@1").details->spread, 2);
  EXPECT_EQ(record("a49", "cpu@1").error, MeasureError::kWrongAnswer);
  EXPECT_TRUE(record("b48", "cpu@1").good());

  const auto again = measure({"--threads", "1,2"});
  EXPECT_THAT(again.out, HasSubstr("2 new records")) << "the disturbed ones";
  EXPECT_THAT(again.out, HasSubstr("12 known"));
}

TEST_F(OpbenchMeasureCpu, LeavesOutWhatCannotBeMade) {
  write_pack("llvm", "broken");
  const auto ran = measure({});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("sluice opbench: broken: sluice programs: broken: not a network"));
  EXPECT_THAT(ran.err, HasSubstr("8 programs cannot be made"));
}

TEST_F(OpbenchMeasureCpu, AnImportIsNoPartOfTheTimeLimit) {
  // Each run would import the network, measure nothing, and ask for another run.
  write_pack("llvm", "slow");
  const auto ran = measure({"--limit-s", "1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, testing::Not(HasSubstr(" 0 new records")));
}

TEST_F(OpbenchMeasureCpu, AProgramOfTwoPacksIsMeasuredOnce) {
  write_pack();
  const auto ran = measure({"cpu.programs"});
  EXPECT_THAT(ran.out, HasSubstr("7 new records")) << ran.err;
}

TEST_F(OpbenchRun, OutlivesAProgramThatEndsTheServer) {
  const auto ran = opbench(
      {"run", "--modelname", "net", "--tuner", "gridsearch", "--trials", "60", "--out", "out"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("tuned: {'mean': 3,")) << "41 of both tasks";
}

TEST_F(OpbenchMeasureCpu, TakesTheFirstProgramsOfEachTask) {
  write_pack();
  const auto ran = measure({"--per-task", "1"});
  EXPECT_THAT(ran.out, HasSubstr("2 new records")) << ran.err;
  EXPECT_TRUE(record("a41", "cpu@1").good());
  EXPECT_TRUE(record("b48", "cpu@1").good());
}

TEST_F(OpbenchMeasureCpu, OptionsOfTheOtherTargetAreRefused) {
  write_pack();
  const auto shares = measure({"--sm", "16"});
  EXPECT_EQ(shares.exit_code, 2);
  EXPECT_THAT(shares.err, HasSubstr("--sm: the pack is for CPUs; use --threads"));
  write_pack("cuda -arch=sm_90");
  const auto threads = measure({"--threads", "2"});
  EXPECT_EQ(threads.exit_code, 2);
  EXPECT_THAT(threads.err, HasSubstr("--threads: the pack is for GPUs; use --sm"));
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
  const auto ran = opbench({"run", "--modelname", "net", "--target", "cuda"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, StartsWith("sluice opbench: there is no NVIDIA driver here"));
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
}

}  // namespace
}  // namespace sluice::profiler
