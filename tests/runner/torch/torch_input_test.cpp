// What goes into a model, and which of its files is run.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/runner/torch/torch_fixture.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

class TorchInput : public test::TorchTest {
 protected:
  /// The hash of the model's outputs for an image; empty if there are none.
  [[nodiscard]] std::string of_image(const std::string& name) {
    json entry = model("classifier", "m");
    entry["input_file_path"] = image(name);
    const auto found = digests(entry);
    return found.empty() ? "" : found.front();
  }
};

TEST_F(TorchInput, ImagesOfOddChannelsBecomeRgb) {
  const std::string rgb = of_image("rgb.png");
  ASSERT_NE(rgb, "") << worker_.err;
  EXPECT_EQ(of_image("rgba.png"), rgb) << "alpha was not dropped";
  const std::string grey = of_image("grey.png");
  EXPECT_NE(grey, "") << worker_.err;
  EXPECT_NE(grey, rgb);
  EXPECT_EQ(of_image("grey_alpha.png"), grey);
  EXPECT_NE(of_image("cmyk.jpg"), "") << worker_.err;
}

TEST_F(TorchInput, WhatIsNoImageIsRefusedInOneLine) {
  EXPECT_EQ(of_image("text.png"), "");
  EXPECT_EQ(worker_.exit_code, 1);
  EXPECT_NE(worker_.err.find("text.png: not an image that can be decoded"), std::string::npos)
      << worker_.err;
  EXPECT_EQ(of_image("grey_16bit.png"), "");
  EXPECT_EQ(worker_.exit_code, 1);
  EXPECT_NE(worker_.err.find("needed: a still image of 8 bits per channel"), std::string::npos)
      << worker_.err;
}

TEST_F(TorchInput, ADetectionModelGetsTheImageAtItsSizeOrScaled) {
  // Its operators come from torchvision's library, and its outputs hold the size that it was given.
  json entry = model("detector", "m");
  const auto synthetic = digests(entry);
  ASSERT_EQ(synthetic.size(), 3U) << worker_.err;  // the warm-up and two jobs
  EXPECT_NE(read("logs/m.log").find("model.pt, input 1x3x720x1280 of synthetic"), std::string::npos)
      << read("logs/m.log");
  entry["resize"] = true;
  entry["resize_size"] = {96, 128};
  entry["input_file_path"] = image("rgb.png");
  entry["batch_size"] = 2;
  ASSERT_EQ(digests(entry).size(), 3U) << worker_.err;
  EXPECT_NE(read("logs/m.log").find("model_fixed.pt, input 2x3x96x128 of "), std::string::npos)
      << read("logs/m.log");
}

/// What the loader of AOTInductor unpacks for the tests' package, of any process.
bool something_is_unpacked() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/tmp", ignored)) {
    if (std::filesystem::exists(entry.path() / "sluice_test_classifier", ignored)) return true;
  }
  return false;
}

TEST_F(TorchInput, APackageOfAotInductorLeavesNothingUnpackedWhenItsWorkerIsKilled) {
  // Every run would leave a folder in /tmp, as large as the model.
  json entry = model("classifier", "m");
  entry["backend"] = "aoti";
  entry["batch_size"] = 2;
  write_models(json::array({entry}));
  const base::Captured got = sluice_run();
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_GT(jobs("m"), 0U);
  EXPECT_TRUE(test::eventually([] { return !something_is_unpacked(); }, test::kProgramPatience));
}

}  // namespace
}  // namespace sluice::runner
