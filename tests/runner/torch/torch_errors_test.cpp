// What a run of PyTorch models refuses, and how a worker that cannot run its model ends.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/runner/torch/torch_fixture.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

class TorchErrors : public test::TorchTest {
 protected:
  void expect_refused(const json& model, const std::string& part) {
    write_models(json::array({model}));
    const base::Captured got = sluice_run();
    EXPECT_EQ(got.exit_code, 2) << got.err;
    EXPECT_TRUE(got.err.starts_with("sluice run: exp.json: /models/0")) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "logs/models_pid.json"));
  }
  /// The model's worker dies while loading, with a line that holds `part` as its last.
  void expect_not_loaded(const json& model, const std::string& part) {
    write_models(json::array({model}));
    const base::Captured got = sluice_run();
    EXPECT_EQ(got.exit_code, 1) << got.err;
    EXPECT_NE(got.err.find("while loading, m (pid "), std::string::npos) << got.err;
    EXPECT_NE(got.err.find("exited with 1; its last lines:\n"), std::string::npos) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
    EXPECT_EQ(got.err.find("Traceback"), std::string::npos) << "more than a line: " << got.err;
    expect_nothing_left();
  }
};

TEST_F(TorchErrors, AMissingModelNamesTheCommandThatMakesIt) {
  expect_refused(model("resnet50", "m"), "create it with: sluice models export resnet50 (or");
  json compiled = model("classifier", "m");
  compiled["backend"] = "aoti";
  compiled["batch_size"] = 8;
  expect_refused(compiled,
                 "only for cpu batch 2; create it with: sluice models export classifier --format "
                 "aoti --batch 8 --device cpu (or");
}

TEST_F(TorchErrors, AMissingImageIsFoundBeforeAnythingStarts) {
  json entry = model("classifier", "m");
  entry["input_file_path"] = "none.png";
  expect_refused(entry, "/models/0/input_file_path: there is no file none.png");
}

TEST_F(TorchErrors, APackageOfAnotherTorchIsFoundBeforeAnythingStarts) {
  namespace fs = std::filesystem;
  fs::copy(SLUICE_TEST_DATA "/store", folder_.path() / "store", fs::copy_options::recursive);
  json description = json::parse(read("store/classifier/model.json"));
  description["torch"] = "2.10.0";
  static_cast<void>(folder_.write("store/classifier/model.json", description.dump()));
  setenv("SLUICE_MODELS", folder_.file("store").c_str(), 1);
  json compiled = model("classifier", "m");
  compiled["backend"] = "aoti";
  compiled["batch_size"] = 2;
  expect_refused(compiled, "was compiled by torch 2.10.0 and works with no other");
}

TEST_F(TorchErrors, AnInputOfTheWrongShapeIsTheModelsOwnError) {
  json entry = model("classifier", "m");
  entry["resize"] = true;
  entry["resize_size"] = {20, 20};
  expect_not_loaded(entry, "(input 1x3x20x20): mat1 and mat2 shapes cannot be multiplied");
}

TEST_F(TorchErrors, ABrokenFileEndsTheRunWithOneLine) {
  expect_not_loaded(model("broken", "m"), "broken/model.pt");
}

}  // namespace
}  // namespace sluice::runner
