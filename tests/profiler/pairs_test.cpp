// `sluice opbench pairs` and `sweep` on a simulated GPU. Prevents: a slowdown that another pair
// had, a faulty program that ends a run, and records of another GPU in a table.
#include <gmock/gmock.h>

#include <fstream>

#include "profiler/records/pair_record.hpp"
#include "tests/profiler/opbench_fixture.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using test::Process;
using testing::HasSubstr;

/// Two operators, whose programs take 2 us and, with 3 kernels, 6 us.
class OpbenchPairs : public Opbench {
 protected:
  void SetUp() override {
    Task other = made_up_task();
    other.id = "00000000000000bb";
    other.name = "fused_relu";
    Program three = program_of("three", "add");
    three.task = other.id;
    three.kernels.resize(3, three.kernels[0]);
    Program fault = program_of("fault", "sluice_fault");
    fault.task = "00000000000000cc";
    Task faulty = made_up_task();
    faulty.id = fault.task;
    PackWriter pack(pack_);
    pack.add(PackHeader{"cuda -arch=sm_90", "t", "f", 0});
    for (const Task& task : {made_up_task(), other, faulty}) pack.add(task);
    for (const Program& program : {program_of("one", "add"), three, fault}) pack.add(program);
    pack.close();
    // As if the faulty program had once been measured: nothing else lets it be paired.
    Record record;
    record.seconds = {5e-6};
    record.details = RecordDetails{.task = fault.task, .program = "fault", .device = "simulated"};
    faulty_ = to_line(record);
  }

  base::Captured pairs(std::vector<std::string> args) {
    args.insert(args.begin(), {SLUICE_TEST_PROGRAM, "opbench", "pairs", pack_, "-r", records_file(),
                               "-o", out_, "--least-us", "1"});
    return Process(args, {.environment = {"LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER}}).finish();
  }

  const std::string pack_ = own_session_.file("pairs.programs");
  const std::string out_ = own_session_.file("pairs.jsonl");
  std::string faulty_;
};

TEST_F(OpbenchPairs, TwoStreamsOfADeviceThatRunsOneKernelAtATimeGainNothing) {
  ASSERT_EQ(measure({pack_}).exit_code, 0);
  const auto ran = pairs({});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("1 new pairs: 1 good"));
  const auto found = read_pair_records(out_).records;
  ASSERT_EQ(found.size(), 1U);
  const PairTimes& times = found[0].times;
  EXPECT_EQ(found[0].sides[0].task, "fused_add");
  EXPECT_EQ(found[0].sides[1].program, "three");
  EXPECT_NEAR(times.alone_s[0], 2e-6, 1e-6);
  EXPECT_NEAR(times.alone_s[1], 6e-6, 2e-6);
  EXPECT_EQ(times.runs[0], 128U) << "equal busy time needs more, but no more fit into the queue";
  EXPECT_EQ(times.runs[1], 42U);
  const PairEffect effect = effect_of(times);
  EXPECT_NEAR(effect.speedup, 1, 0.1);
  // Kernels of two streams take turns.
  EXPECT_GT(effect.slowdown[0], 1.5);
  EXPECT_GT(effect.slowdown[1], 1.5);

  const auto again = pairs({});
  EXPECT_THAT(again.out, HasSubstr("0 new pairs: 0 good, 0 disturbed, 0 failed; 1 known"));
  EXPECT_EQ(read_pair_records(out_).records.size(), 1U);
}

TEST_F(OpbenchPairs, TwoProcessesAreMeasuredInTheSameTime) {
  ASSERT_EQ(measure({pack_}).exit_code, 0);
  const auto ran = pairs({"--kind", "processes"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto found = read_pair_records(out_).records;
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].error, MeasureError::kNone);
  // Contexts take turns of 22 ms (2.2 ms, ten times as slow). How the turns are shared depends on
  // the speed of the host, but one of the two is much slower. One after the other, neither would
  // be.
  const PairEffect effect = effect_of(found[0].times);
  EXPECT_GT(std::ranges::max(effect.slowdown), 1.5);
}

TEST_F(OpbenchPairs, AFaultyProgramCostsOnlyItsPairs) {
  ASSERT_EQ(measure({pack_}).exit_code, 0);
  RecordFile(records_file()).add_line(faulty_);
  const auto ran = pairs({});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("3 new pairs: 1 good, 0 disturbed, 2 failed"));
  EXPECT_THAT(ran.err, HasSubstr("ILLEGAL_ADDRESS"));
  EXPECT_THAT(pairs({}).out, HasSubstr("0 new pairs: 0 good, 0 disturbed, 0 failed; 3 known"));
}

TEST_F(OpbenchPairs, WithoutRecordsOrADaemonTheLineSaysWhatToDo) {
  const auto none = pairs({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("records.jsonl: no such file; measure the packs first"));
  std::ofstream(records_file()).close();
  const auto empty = pairs({});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("measure the packs first (sluice opbench measure)"));
  // On a machine that has MPS, too.
  const auto mps = Process({SLUICE_TEST_PROGRAM, "opbench", "pairs", pack_, "-r", records_file(),
                            "-o", out_, "--kind", "mps"},
                           {.environment = {"PATH=/nowhere"}})
                       .finish();
  EXPECT_EQ(mps.exit_code, 1);
  EXPECT_THAT(mps.err, HasSubstr("the MPS daemon did not start"));
  Record record;
  record.seconds = {5e-6};
  record.details = RecordDetails{.task = kTask, .program = "one", .device = "H200"};
  RecordFile(records_file()).add(record);
  const auto other = pairs({});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("have records of H200, none of simulated"));
}

TEST_F(Opbench, ASweepOfBlocksFindsTheSmallestThatIsFastEnough) {
  // Blocks of 32 threads with three kernels of 2 us, of 128 and 256 with one.
  std::vector<Program> programs;
  for (const auto& [threads, kernels] :
       std::vector<std::pair<unsigned, std::size_t>>{{256, 1}, {32, 3}, {128, 1}}) {
    Program program = program_of("b" + std::to_string(threads), "add");
    program.kernels[0].block = {threads, 1, 1};
    program.kernels.resize(kernels, program.kernels[0]);
    programs.push_back(program);
  }
  const std::string table = own_session_.file("sweep.csv");
  const std::vector<std::string> command{
      SLUICE_TEST_PROGRAM, "opbench", "sweep", "block", pack_of(programs), "-o",
      records_file(),      "--table", table};
  const std::vector<std::string> environment{"LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER};
  const auto ran = Process(command, {.environment = environment}).finish();
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("fused_add: threads of a block 128; 32: 6"));
  EXPECT_THAT(test::read_file(table), HasSubstr(",fused_add,256,"));
  EXPECT_EQ(Process(command, {.environment = environment}).finish().exit_code, 0);
  EXPECT_EQ(read_records(records_file()).records.size(), 3U) << "nothing is measured twice";
}

TEST_F(Opbench, ASweepOfSmsSaysWhichSharesItCannotHave) {
  // The simulated driver has no green contexts.
  const auto ran =
      Process({SLUICE_TEST_PROGRAM, "opbench", "sweep", "sm",
               pack_of({program_of("p1", "add"), program_of("p2", "add")}), "-o", records_file(),
               "--table", own_session_.file("sweep.csv"), "--sm", "132,64", "--programs", "1"},
              {.environment = {"LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER}})
          .finish();
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no share of 64 SMs"));
  EXPECT_THAT(ran.out, HasSubstr("fused_add: SMs 132; 132: 2"));
}

TEST_F(Opbench, ASweepTakesNoRecordsOfAnotherGpu) {
  Record other{.target = "cuda", .task_name = "fused_add", .seconds = {1e-9}};
  other.details = RecordDetails{.task = kTask, .program = "p9", .device = "H200@64", .sms = 64};
  RecordFile(records_file()).add(other);
  const auto ran =
      Process({SLUICE_TEST_PROGRAM, "opbench", "sweep", "sm", pack_of({program_of("p1", "add")}),
               "-o", records_file(), "--table", own_session_.file("sweep.csv"), "--sm", "132"},
              {.environment = {"LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER}})
          .finish();
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("records of H200 and simulated; give another file for each GPU"));
}

}  // namespace
}  // namespace sluice::profiler
