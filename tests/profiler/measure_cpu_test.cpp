// `sluice opbench measure` and `sweep threads` on CPUs with a stand-in for TVM. Prevents: programs
// that are measured twice or not at all, and times of one number of threads as those of another.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "profiler/workers/worker_pool.hpp"
#include "tests/profiler/run_fixture.hpp"

namespace sluice::profiler {
namespace {

using test::read_file;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Packs for CPUs: tasks a and b of the stand-in's network, and one that it does not make.
class OpbenchMeasureCpu : public OpbenchRun {
 protected:
  /// `of_a`: the programs of task a.
  void write_pack(const std::string& target = "llvm", const std::string& network_name = "net",
                  const std::string& name = "cpu.programs",
                  const std::vector<std::uint64_t>& of_a = {41, 43, 44, 45, 46, 49}) {
    PackWriter pack(file(name));
    pack.add(PackHeader{target, "0.27.0", "0", 0});
    Network network;
    network.name = network_name;
    for (const char* const task : {"a", "b", "c"}) {
      network.calls.push_back({id_of(task), {}});
      pack.add(Task{.id = id_of(task), .name = task, .buffers = {{{16}, "float32", true}}});
    }
    pack.add(network);
    for (const std::uint64_t index : of_a) add(pack, "a", index);
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
  EXPECT_THAT(ran.out, Not(HasSubstr(" 0 new records")));
}

TEST_F(OpbenchMeasureCpu, AProgramOfTwoPacksIsMeasuredOnce) {
  write_pack();
  const auto ran = measure({"cpu.programs"});
  EXPECT_THAT(ran.out, HasSubstr("7 new records")) << ran.err;
}

TEST_F(OpbenchMeasureCpu, TakesTheFirstProgramsOfEachTask) {
  write_pack();
  const auto ran = measure({"--per-task", "1"});
  EXPECT_THAT(ran.out, HasSubstr("2 new records")) << ran.err;
  EXPECT_TRUE(record("a41", "cpu@1").good());
  EXPECT_TRUE(record("b48", "cpu@1").good());
}

TEST_F(OpbenchMeasureCpu, AProgramOfTwoPacksIsOneOfItsTask) {
  write_pack();
  write_pack("llvm", "net", "more.programs", {41, 47});
  const auto ran = measure({"more.programs", "--per-task", "7"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(record("a47", "cpu@1").good()) << "the seventh";
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

}  // namespace
}  // namespace sluice::profiler
