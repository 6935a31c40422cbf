// A time that is wrong by a unit is hidden by the constant that is fitted to it, until the device
// is another one.
#include "predictor/model/times.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "synthetic.hpp"

namespace sluice::predictor {
namespace {

double time_of(Part part, const Program& program, const DeviceInfo& device) {
  return busy_times(program, {.bytes = 2e6}, device)[part];
}

/// 132 SMs at 1 GHz.
DeviceInfo device() { return test::made_up_device("H", 132 * 0.256); }

Program one_kernel(double blocks, double threads, const KernelCounts& counts) {
  Program program;
  program.kernels.push_back({blocks, threads, counts});
  return program;
}

TEST(BusyTimes, AreThoseOfTheBusiestSm) {
  KernelCounts counts;
  counts.fma = 1000;
  counts.shared_loads = 10;
  counts.shared_load_wavefronts = 320;
  // A block of two warps on each SM: 2 x 1000 FMA of a warp, 4 of which a clock runs.
  EXPECT_NEAR(time_of(kFma, one_kernel(132, 64, counts), device()), 500e-9, 1e-12);
  EXPECT_NEAR(time_of(kShared, one_kernel(132, 64, counts), device()), 640e-9, 1e-12);
  EXPECT_NEAR(time_of(kFma, one_kernel(133, 64, counts), device()), 1000e-9, 1e-12)
      << "one SM has a second block";
  EXPECT_NEAR(time_of(kFma, one_kernel(132, 33, counts), device()), 500e-9, 1e-12)
      << "a part of a warp takes as long as one";
  EXPECT_NEAR(time_of(kMemory, one_kernel(132, 64, counts), device()), 2e6 / 4096e9, 1e-15);
  DeviceInfo share = device();
  share.fp32_tflops /= 4;  // 33 SMs
  EXPECT_NEAR(time_of(kFma, one_kernel(132, 64, counts), share), 2000e-9, 1e-12);
  Program twice = one_kernel(132, 64, counts);
  twice.kernels.push_back(twice.kernels[0]);
  EXPECT_NEAR(time_of(kFma, twice, device()), 1000e-9, 1e-12) << "one kernel after the other";
}

TEST(BusyTimes, ArraysOfAThreadAreMemoryIfTheirLoopsStay) {
  KernelCounts counts;
  counts.fma = 100;
  counts.local_bytes = 400;
  counts.local_accesses = 50;
  counts.unrolled = 100;
  EXPECT_EQ(time_of(kLocalMemory, one_kernel(132, 32, counts), device()), 0);
  counts.unrolled = 1000;
  EXPECT_NEAR(time_of(kLocalMemory, one_kernel(132, 32, counts), device()), 50e-9, 1e-12);
  EXPECT_EQ(time_of(kSpills, one_kernel(132, 32, counts), device()), 0);
  counts.unrolled = 100;
  counts.local_bytes = 4000;  // more than the registers of a thread
  EXPECT_GT(time_of(kSpills, one_kernel(132, 32, counts), device()), 0);
}

TEST(Shape, LeavesOutWhatTheCompilerSaidIfItIsUnknown) {
  Program program = one_kernel(10, 64, {});
  const std::size_t shorter = shape_of(program, {}, device(), false).size();
  program.compiled = {.registers = 40, .spill_bytes = 3};
  const auto shape = shape_of(program, {}, device(), true);
  ASSERT_EQ(shape.size(), shorter + 2);
  EXPECT_EQ(shape[shorter], 40);
  EXPECT_EQ(shape[shorter + 1], 2);
}

TEST(TimeModel, IsThePNorm) {
  TimeModel model;
  model.log_factors.fill(-30);
  model.log_factors[0] = std::log(2);
  model.log_factors[1] = 0;
  model.log_launch = std::log(1e-6);
  Times times{};
  times[0] = 2e-6;
  times[1] = 5e-6;
  EXPECT_NEAR(std::exp(model.log_seconds(times)), 10e-6, 1e-9) << "p = 1: a sum";
  model.log_p = std::log(2);
  EXPECT_NEAR(std::exp(model.log_seconds(times)), 1e-6 * std::sqrt(1 + 16 + 25), 1e-9);
}

/// Programs whose times are 3 times the first busy time plus half of the third, and a launch.
TEST(TimeModel, IsFittedToMeasuredTimes) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-14, -7);
  std::vector<Times> times(500, Times{});
  std::vector<double> wanted;
  for (Times& each : times) {
    each[0] = std::exp(exponent(random));
    each[2] = std::exp(exponent(random));
    wanted.push_back(std::log(3 * each[0] + 0.5 * each[2] + 2e-6));
  }
  const TimeModel model = fit_time_model(times, wanted, 0);
  double error = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    error += std::abs(model.log_seconds(times[i]) - wanted[i]) / 500;
  }
  EXPECT_LT(error, 0.05);
  EXPECT_NEAR(model.log_factors[0], std::log(3), 0.3);
}

}  // namespace
}  // namespace sluice::predictor
