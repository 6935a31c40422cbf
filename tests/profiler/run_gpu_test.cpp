// `sluice opbench run` for a GPU with a stand-in for TVM. Prevents: trials that are not what was
// compiled and measured, right programs that are called wrong, and a slower program as the fastest.
#include <gmock/gmock.h>

#include <array>
#include <filesystem>

#include "profiler/compile/nvrtc.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "tests/support/process.hpp"
#include "tests/support/session.hpp"

namespace sluice::profiler {
namespace {

using test::Process;
using test::read_file;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Programs that are compiled for real and run on the simulated GPU.
class OpbenchRunGpu : public test::SessionTest {
 protected:
  base::Captured run(const std::string& target, const std::string& network = "net",
                     const std::string& tuner = "gridsearch",
                     const std::vector<std::string>& more = {}) {
    std::vector<std::string> args{SLUICE_TEST_PROGRAM,
                                  "opbench",
                                  "run",
                                  "--modelname",
                                  network,
                                  "--target",
                                  target,
                                  "--tuner",
                                  tuner,
                                  "--trials",
                                  "10",
                                  "--out",
                                  own_session_.file("out")};
    args.insert(args.end(), more.begin(), more.end());
    return Process(args, {.environment = {"SLUICE_TVM_PYTHON=" SLUICE_TEST_FAKE_PROGRAMS,
                                          "LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER}})
        .finish();
  }

  /// The indices of the programs in a pack of the results, each of which has its source.
  std::vector<std::uint64_t> programs(const std::string& pack) {
    PackReader reader(own_session_.file("out/Performance/" + pack));
    std::vector<std::uint64_t> indices;
    while (const auto entry = reader.next()) {
      const auto* const program = std::get_if<Program>(&*entry);
      if (program == nullptr) continue;
      EXPECT_THAT(program->source, HasSubstr("__global__"));
      indices.push_back(program->index);
    }
    EXPECT_FALSE(reader.torn());
    return indices;
  }
};

TEST_F(OpbenchRunGpu, EachTrialIsCompiledAndMeasured) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const auto ran = run("cuda -arch=sm_90");  // as `sluice programs` writes it
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string results = own_session_.file("out/Performance/net-gridsearch-cuda-autotvm.json");
  auto all = read_records(results + ".tmp").records;
  ASSERT_EQ(all.size(), 2U * 10U);
  // A record is written when it is there; the order of the trials is that of op_costs.
  std::ranges::sort(all, {}, [](const Record& one) { return std::pair(one.task_name, one.index); });
  const std::string costs = read_file(own_session_.file("out/op_costs/net_gridsearch_cuda/1.csv"));
  EXPECT_THAT(costs, HasSubstr("\nfused_b,2,,")) << "the third trial, index 3, is no C";
  constexpr std::array<std::uint64_t, 10> kMade{1, 2, 3, 4, 6, 7, 8, 9, 11, 12};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t index = kMade.at(i % 10);
    EXPECT_EQ(all[i].index, index);
    EXPECT_EQ(all[i].task_name, i < 10 ? "fused_a" : "fused_b");
    EXPECT_EQ(all[i].target, "cuda -arch=sm_90");
    EXPECT_EQ(all[i].details->device, "simulated");
    if (index == 3) {
      EXPECT_EQ(all[i].error, MeasureError::kCompileDevice);
    } else {
      EXPECT_EQ(all[i].error, MeasureError::kNone) << to_line(all[i]);
      EXPECT_EQ(std::stoull(all[i].details->program.substr(8)), index);
      // A kernel takes 2 us there.
      EXPECT_GT(all[i].cost(), 1.5e-6 * static_cast<double>(index));
    }
  }
  const auto best = read_records(results).records;
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0].index, 1U);
  EXPECT_EQ(best[1].index, 1U);
  // Three calls; the schedule of TVM has two kernels, the best trial one.
  EXPECT_THAT(ran.out, HasSubstr("TVM's own schedules: {'mean': 0.012"));
  EXPECT_THAT(ran.out, HasSubstr("the better of both: {'mean': 0.006"));
  EXPECT_THAT(ran.err, HasSubstr("program aaaaaaaa00000003: program.cu(1): error:"));
  EXPECT_THAT(programs("net-gridsearch-cuda-best.programs"), ElementsAre(1, 1));
  const std::string latencies = read_file(own_session_.file("out/latency.csv"));
  EXPECT_THAT(latencies, HasSubstr("net,1,cuda,simulated,gridsearch,0,tvm,0,0.012"));
  EXPECT_THAT(latencies, HasSubstr("net,1,cuda,simulated,gridsearch,0,both,10,0.006"));
}

TEST_F(OpbenchRunGpu, TheFastestProgramMayBeThatOfTvm) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  // Ten random programs of 84 have 4 kernels and more; TVM's own schedule has two.
  const auto ran = run("cuda", "net", "random");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(programs("net-random-cuda-best.programs"), ElementsAre(84, 84));
  EXPECT_THAT(read_file(own_session_.file("out/latency.csv")), HasSubstr(",both,10,0.012"));
  // The pack says the same as the records.
  const auto again = Process({SLUICE_TEST_PROGRAM, "opbench", "measure",
                              own_session_.file("out/Performance/net-random-cuda-best.programs"),
                              "-o", own_session_.file("again.jsonl")},
                             {.environment = {"LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER}})
                         .finish();
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_records(own_session_.file("again.jsonl")).records.size(), 2U);
  EXPECT_THAT(again.out,
              HasSubstr("net, batch 1, the fastest programs of 3 calls: simulated 0.012"));
}

// The installed predictor rates their sources. A kernel more takes longer, so it begins with few.
TEST_F(OpbenchRunGpu, TunesWithAPredictor) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const auto ran = run("cuda", "net", "predict", {"--predictor-device", "H100"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto best =
      read_records(own_session_.file("out/Performance/net-predict-cuda-autotvm.json")).records;
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0].index, 1U) << "a tuner that draws at random has 4";
  const auto unknown = run("cuda", "net", "predict");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("no device 'simulated' in devices.csv"));
}

TEST_F(OpbenchRunGpu, ResultsAreComparedWithThoseOfTheCpu) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  // No kernel of the simulated GPU writes the zeros that the CPU computed.
  const auto ran = run("cuda", "referenced", "gridsearch", {"--check", "cpu"});
  EXPECT_EQ(ran.exit_code, 1);
  for (const Record& record :
       read_records(
           own_session_.file("out/Performance/referenced-gridsearch-cuda-autotvm.json.tmp"))
           .records) {
    EXPECT_EQ(record.error,
              record.index == 3 ? MeasureError::kCompileDevice : MeasureError::kWrongAnswer);
  }
  EXPECT_THAT(ran.err, Not(HasSubstr("the CPU has no result of it")));
  const auto without = run("cuda", "net", "gridsearch", {"--check", "cpu"});
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_THAT(without.err, HasSubstr("fused_a: the CPU has no result of it"));
  EXPECT_EQ(run("cuda", "referenced").exit_code, 0) << "the simulated GPU computes nothing";
}

TEST_F(OpbenchRunGpu, APartOfTheCpusResultIsNoReference) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const auto ran = run("cuda", "half", "gridsearch", {"--check", "cpu"});
  EXPECT_EQ(ran.exit_code, 0) << "the programs are compared with the first one";
  EXPECT_THAT(ran.err, HasSubstr("fused_a: the CPU has no result of it"));
  EXPECT_FALSE(std::filesystem::exists(own_session_.file("out/reference")));
}

TEST_F(OpbenchRunGpu, TasksThatTvmHasNoScheduleForAreCounted) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const auto ran = run("cuda", "refused");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out,
              HasSubstr("TVM's own schedules: none, because TVM has none for 1 of 2 tasks\n"));
  EXPECT_THAT(ran.out, Not(HasSubstr("the better of both")));
  EXPECT_THAT(programs("refused-gridsearch-cuda-best.programs"), ElementsAre(1));
}

TEST_F(OpbenchRunGpu, ATaskWhoseOwnScheduleEndsTvmHasNone) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const auto one = run("cuda", "fatal_default");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("TVM has none for 1 of 2 tasks\n"));
  EXPECT_THAT(one.out, HasSubstr("tuned: {'mean': 0.006"));
  EXPECT_THAT(one.err, HasSubstr("exited with 5 during default; see above: {\"do\":\"default\","));
  const auto all = run("cuda", "fatal_defaults");
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("TVM has none for 2 of 2 tasks\n"));
}

TEST_F(OpbenchRunGpu, AnotherArchitectureIsRefused) {
  for (const char* const target : {"cuda:sm_75", "cuda -arch=sm_75"}) {
    const auto ran = run(target);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, HasSubstr("--target: 'cuda -arch=sm_75', but the GPU is sm_90"));
    EXPECT_EQ(ran.out, "") << "the network was imported";
  }
}

}  // namespace
}  // namespace sluice::profiler
