// `sluice opbench measure` on real sources, a real compiler and a simulated GPU. Prevents: a faulty
// program that ends a run, a run that begins anew after a kill, and labels from a GPU that a
// critical job used.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/profiler/opbench_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process.hpp"

namespace sluice::profiler {
namespace {

using test::Process;
using testing::HasSubstr;
using testing::Not;

TEST_F(Opbench, MeasuresEveryProgramOnce) {
  const std::string pack = pack_of({program_of("p1", "add"), program_of("p2", "add_2")});
  const auto first = measure({pack});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("2 new records"));
  const auto found = records();
  ASSERT_EQ(found.size(), 2U);
  const Record& record = found.at("p1");
  EXPECT_EQ(record.error, MeasureError::kNone);
  EXPECT_EQ(record.seconds.size(), 5U);
  // A kernel takes 2 us there, and one after the other without the host.
  EXPECT_NEAR(record.cost(), 2e-6, 1e-6);
  EXPECT_EQ(record.target, "cuda -arch=sm_90");
  EXPECT_EQ(record.details->device, "simulated");
  EXPECT_EQ(record.details->registers, 16);
  EXPECT_EQ(record.args.dump(), R"([["TENSOR",[1024],"float32"],["TENSOR",[1024],"float32"]])");

  const auto second = measure({pack});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("0 new records"));
  EXPECT_THAT(second.out, HasSubstr("2 known"));
  EXPECT_EQ(read_records(records_file()).records.size(), 2U);
}

TEST_F(Opbench, AFaultyProgramCostsOnlyItself) {
  // One that faults and one that never ends, each with a good program behind it.
  const auto ran = measure({pack_of({program_of("fault", "sluice_fault"), program_of("p1", "add"),
                                     program_of("hang", "sluice_spin"), program_of("p2", "add")})});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto found = records();
  EXPECT_EQ(found.at("fault").error, MeasureError::kRuntimeDevice);
  EXPECT_THAT(ran.err, HasSubstr("program fault: "));
  EXPECT_THAT(ran.err, HasSubstr("ILLEGAL_ADDRESS"));
  EXPECT_EQ(found.at("hang").error, MeasureError::kRunTimeout);
  EXPECT_TRUE(found.at("p1").good());
  EXPECT_TRUE(found.at("p2").good());
}

TEST_F(Opbench, AKilledRunGoesOnWhereItEnded) {
  std::vector<Program> programs;
  for (int i = 0; i < 60; ++i) programs.push_back(program_of("p" + std::to_string(i), "add"));
  const std::string pack = pack_of(programs);
  {
    Process run({SLUICE_TEST_PROGRAM, "opbench", "measure", "-o", records_file(), pack},
                {.environment = {"LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER}});
    ASSERT_TRUE(test::eventually([&] { return read_records(records_file()).records.size() > 3; }));
    kill(run.pid(), SIGKILL);
    (void)run.finish();
  }
  const std::size_t before = read_records(records_file()).records.size();
  ASSERT_LT(before, 60U) << "killed too late for this test";
  const auto again = measure({pack});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr(std::to_string(before) + " known"));
  EXPECT_EQ(records().size(), 60U);
  EXPECT_EQ(read_records(records_file()).records.size(), 60U) << "no program is there twice";
}

TEST_F(Opbench, AnotherArchitectureOrNoProgramIsRefused) {
  const auto other = measure({pack_of({program_of("p", "add")}, "cuda -arch=sm_75")});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("programs for sm_75, but the GPU is sm_90"));
  const auto dsp = measure({pack_of({}, "hexagon")});
  EXPECT_EQ(dsp.exit_code, 2);
  EXPECT_THAT(dsp.err, HasSubstr("not for a GPU"));
  Program bare = program_of("p", "add");
  bare.cubins.clear();
  const auto empty = measure({pack_of({bare})});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("neither a source nor a binary"));
  const auto none = measure({own_session_.file("none.programs")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("cannot be read"));
}

TEST_F(Opbench, APackThatDoesNotFitIsRefusedBeforeTheFirstMeasurement) {
  const std::string empty = own_session_.file("empty.programs");
  std::ofstream(empty).close();
  const std::string good = pack_of({program_of("p", "add")});
  const std::string other = pack_of({}, "cuda -arch=sm_75", "sm_75.programs");
  const std::string cpu = pack_of({}, "llvm", "cpu.programs");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{good, empty}, "empty.programs: not a pack"},
      {{good, other}, "sm_75.programs: programs for sm_75, but the GPU is sm_90"},
      {{good, cpu}, "cpu.programs: programs for llvm, but the first pack is for GPUs"},
      {{cpu, good},
       "test.programs: programs for cuda -arch=sm_90, but the first pack is for CPUs"}};
  for (const auto& [packs, said] : cases) {
    const auto ran = measure(packs);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, HasSubstr(said));
    EXPECT_FALSE(std::filesystem::exists(records_file()));
  }
}

TEST_F(Opbench, APackIsLookedAtBeforeTheGpu) {
  const std::string empty = own_session_.file("empty.programs");
  std::ofstream(empty).close();
  for (const auto& [pack, said] : std::vector<std::pair<std::string, std::string>>{
           {empty, "not a pack"}, {pack_of({}, "hexagon"), "not for a GPU"}}) {
    for (const char* const command : {"measure", "pairs", "sweep sm"}) {
      const auto ran =
          Process({"/bin/sh", "-c",
                   std::string(SLUICE_TEST_PROGRAM) + " opbench " + command + " " + pack +
                       (command == std::string("pairs") ? " -r " + pack : "") + " --device 7"})
              .finish();
      EXPECT_EQ(ran.exit_code, 2) << command;
      EXPECT_THAT(ran.err, HasSubstr(pack + ": ")) << command;
      EXPECT_THAT(ran.err, HasSubstr(said)) << command;
    }
  }
}

TEST_F(Opbench, AGpuThatIsNotThereIsSaidOnceAndLeavesNoFile) {
  const auto ran = measure({pack_of({program_of("p", "add")}), "--device", "7"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("GPU 7: sluice-measure cannot use it"));
  const std::size_t first = ran.err.find("sluice-measure: ");
  ASSERT_NE(first, std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("sluice-measure: ", first + 1), std::string::npos) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(records_file()));
}

TEST_F(Opbench, AShareThatCannotBeHadIsSaidAndLeftOut) {
  // The simulated driver has no green contexts.
  const auto ran = measure({pack_of({program_of("p", "add")}), "--sm", "132,64"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no share of 64 SMs: the driver has no"));
  EXPECT_EQ(records().at("p").details->device, "simulated");
  EXPECT_EQ(measure({pack_of({program_of("p", "add")}), "--sm", "64"}).exit_code, 1);
}

TEST_F(Opbench, TheTimeLimitLeavesProgramsForTheNextRun) {
  std::vector<Program> programs;
  for (int i = 0; i < 2000; ++i) programs.push_back(program_of("p" + std::to_string(i), "add"));
  const auto ran = measure({pack_of(programs), "--limit-s", "1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("left out by the time limit"));
  EXPECT_LT(records().size(), 2000U);
}

TEST_F(Opbench, AReferenceIsWhatOutputsMustBe) {
  // Kernels of the simulated GPU write nothing, so the output keeps the bytes it had before.
  const std::string folder = own_session_.file("reference");
  std::filesystem::create_directories(folder + "/" + kTask);
  const auto write = [&](int buffer, const std::string& bytes) {
    std::ofstream(folder + "/" + kTask + "/" + std::to_string(buffer) + ".bin") << bytes;
  };
  const std::string pack = pack_of({program_of("p", "add")});
  const auto measured = [&] {
    std::filesystem::remove(records_file());
    return measure({pack, "--reference", folder});
  };
  write(1, std::string(4096, 'x'));
  const auto wrong = measured();
  EXPECT_EQ(records().at("p").error, MeasureError::kWrongAnswer)
      << "the first program of a task is compared too";
  EXPECT_THAT(wrong.err, HasSubstr("program p: buffer 1: "));
  write(1, std::string(4096, '\x7f'));
  (void)measured();
  EXPECT_TRUE(records().at("p").good());
  EXPECT_THAT(measured().err, Not(HasSubstr("no outputs")));
  write(0, "short");
  EXPECT_THAT(measured().err, HasSubstr("0.bin: 5 bytes instead of 4096")) << "an input";
  std::filesystem::remove(folder + "/" + kTask + "/1.bin");
  EXPECT_THAT(measured().err, HasSubstr("1 tasks have no outputs in " + folder));
  std::filesystem::remove_all(folder);
  const auto none = measured();
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--reference " + folder + ": no such folder"));
}

TEST_F(OpbenchCompiler, SourcesAreCompiledAndFaultyOnesRecorded) {
  const auto ran =
      measure({pack_of({with_source("bad", "int add( {"), with_source("good", kGood)})});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(records().at("bad").error, MeasureError::kCompileDevice);
  EXPECT_THAT(ran.err, HasSubstr("program bad: program.cu(1): error:"));
  EXPECT_TRUE(records().at("good").good());
}

TEST_F(OpbenchCompiler, AProgramThatCompilesTooLongIsGivenUp) {
  const auto ran = measure({pack_of({with_source("endless", kEndless), with_source("good", kGood)}),
                            "-j", "1", "--compile-limit-s", "2"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(records().at("endless").error, MeasureError::kCompileTimeout);
  EXPECT_TRUE(records().at("good").good()) << "the worker was replaced";
}

/// Measuring as best effort next to a critical program.
class OpbenchNextToACriticalJob : public test::EndToEndTest {
 protected:
  /// `sluice opbench` as best effort on the simulated GPU.
  [[nodiscard]] std::vector<std::string> best_effort(const std::vector<std::string>& args) const {
    std::vector<std::string> command{SLUICE_TEST_PROGRAM,
                                     "exec",
                                     "--gpu",
                                     "sim",
                                     "--session",
                                     session_,
                                     "--priority",
                                     "0",
                                     "--",
                                     SLUICE_TEST_PROGRAM,
                                     "opbench"};
    command.insert(command.end(), args.begin(), args.end());
    return command;
  }
};

TEST_F(OpbenchNextToACriticalJob, DisturbedLabelsAreMarkedAndMeasuredAgain) {
  start_controller();
  const std::string pack = own_session_.file("test.programs");
  const std::string out = own_session_.file("records.jsonl");
  {
    PackWriter writer(pack);
    writer.add(PackHeader{"cuda -arch=sm_90", "t", "f", 0});
    writer.add(made_up_task());
    for (int i = 0; i < 3; ++i) writer.add(program_of("p" + std::to_string(i), "add"));
    writer.close();
  }
  const auto command = best_effort({"measure", "-o", out, pack});
  auto& critical = start_critical();
  const std::string job = critical.ask("begin");
  Process run(command);
  // The job never ends, so every label is disturbed; but nothing waits indefinitely.
  const auto disturbed = run.finish();
  EXPECT_EQ(disturbed.exit_code, 0) << disturbed.err;
  critical.ask("end " + job);
  auto found = read_records(out).records;
  ASSERT_EQ(found.size(), 3U);
  for (const Record& record : found) EXPECT_TRUE(record.details->disturbed);

  const auto quiet = Process(command).finish();
  EXPECT_EQ(quiet.exit_code, 0) << quiet.err;
  found = read_records(out).records;
  ASSERT_EQ(found.size(), 6U);
  for (std::size_t i = 3; i < 6; ++i) EXPECT_TRUE(found[i].good()) << to_line(found[i]);
}

TEST_F(OpbenchNextToACriticalJob, ATuningIsDisturbedSaysSoAndGoesOn) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  start_controller();
  const auto tune = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"run",
                                  "--modelname",
                                  "net",
                                  "--target",
                                  "cuda",
                                  "--tuner",
                                  "gridsearch",
                                  "--trials",
                                  "1",
                                  "--ifcompare",
                                  "false",
                                  "--out",
                                  own_session_.file("out")};
    args.insert(args.end(), more.begin(), more.end());
    return Process(best_effort(args),
                   {.environment = {"SLUICE_TVM_PYTHON=" SLUICE_TEST_FAKE_PROGRAMS}})
        .finish();
  };
  auto& critical = start_critical();
  const std::string job = critical.ask("begin");
  const auto disturbed = tune({});
  EXPECT_EQ(disturbed.exit_code, 1);
  EXPECT_THAT(disturbed.err, HasSubstr("others used the GPU each time"));
  critical.ask("end " + job);

  const auto quiet = tune({"--resume"});
  EXPECT_EQ(quiet.exit_code, 0) << quiet.err;
  EXPECT_THAT(quiet.out, HasSubstr("tuned: {'mean': 0.006"));
}

}  // namespace
}  // namespace sluice::profiler
