#include "base/gpus.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace sluice::base {
namespace {

TEST(Gpus, SimulatedGpuReportsItsOwnScale) {
  const Gpus gpus =
      parse_gpus(R"json({"kind":"simulated","why_simulated":"no driver",)json"
                 R"json("devices":[{"index":0,"name":"Sluice simulated GPU (scale 2.5)"}]})json");
  EXPECT_TRUE(gpus.simulated);
  EXPECT_DOUBLE_EQ(gpus.time_scale, 2.5);
  // Readers must see that the figures are not from a real GPU.
  EXPECT_NE(describe_gpu(gpus, 0).find("SIMULATED"), std::string::npos);
}

TEST(Gpus, RealGpuHasRealTime) {
  const Gpus gpus =
      parse_gpus(R"({"kind":"real","devices":[{"name":"NVIDIA H200"},{"name":"NVIDIA H200"}]})");
  EXPECT_FALSE(gpus.simulated);
  EXPECT_DOUBLE_EQ(gpus.time_scale, 1);
  EXPECT_EQ(gpus.names.size(), 2U);
  EXPECT_EQ(describe_gpu(gpus, 1), "GPU 1: NVIDIA H200 (real)");
}

TEST(Gpus, OtherTextIsRefused) {
  EXPECT_THROW((void)parse_gpus(""), RunError);
  EXPECT_THROW((void)parse_gpus("{}"), RunError);
  EXPECT_THROW((void)parse_gpus(R"({"kind":"real","devices":[]})"), RunError);
}

}  // namespace
}  // namespace sluice::base
