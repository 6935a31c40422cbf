#include "engine/store/model_store.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

using nlohmann::json;

const TorchTarget kH200{true, "sm_90", "2.11.0"};
const TorchTarget kCpu{false, "", "2.11.0"};

json torchscript(const char* file, bool resizes, const char* dtype = "float32") {
  return {{"format", "torchscript"}, {"file", file},   {"input", {3, 224, 224}},
          {"dtype", dtype},          {"batch", "any"}, {"resizes", resizes}};
}

json compiled(const char* file, int batch, const char* device, const char* arch) {
  json variant{{"format", "aoti"},   {"file", file},   {"input", {3, 224, 224}},
               {"dtype", "float32"}, {"batch", batch}, {"device", device}};
  if (*arch != '\0') variant["gpu_arch"] = arch;
  return variant;
}

class ModelStoreTest : public ::testing::Test {
 protected:
  /// Writes the model STORE/net with the variants and their files.
  void store(const json& variants, const std::string& task = "classification") {
    std::filesystem::create_directories(folder_.path() / "net");
    const json description{{"task", task}, {"torch", "2.11.0"}, {"variants", variants}};
    static_cast<void>(folder_.write("net/model.json", description.dump()));
    for (const json& variant : variants) {
      static_cast<void>(folder_.write("net/" + variant["file"].get<std::string>(), "file"));
    }
  }
  [[nodiscard]] static ModelSpec model(const std::string& backend, int batch = 1) {
    ModelSpec model;
    model.model_name = "net";
    model.backend = backend;
    model.batch_size = batch;
    return model;
  }
  /// The name of the chosen file.
  [[nodiscard]] std::string chosen(const ModelSpec& model, const TorchTarget& target) const {
    return std::filesystem::path(find_stored_model(place(), model, target, "e").file).filename();
  }
  /// The arguments of the export that the error suggests; empty without an error.
  [[nodiscard]] std::string command(const ModelSpec& model, const TorchTarget& target) const {
    try {
      static_cast<void>(find_stored_model(place(), model, target, "e"));
      return "";
    } catch (const MissingModel& missing) {
      std::string line;
      for (const std::string& arg : missing.export_args()) line += arg + " ";
      EXPECT_TRUE(std::string(missing.what()).starts_with("e: ")) << missing.what();
      EXPECT_NE((std::string(missing.what()) + " ").find("sluice " + line), std::string::npos)
          << missing.what();
      return line;
    }
  }
  [[nodiscard]] ModelStore place() const { return {folder_.path(), named_}; }

  test::TempFolder folder_;
  bool named_ = false;
};

TEST_F(ModelStoreTest, ErrorForAMissingModelNamesTheExport) {
  EXPECT_EQ(command(model("torchscript"), kH200), "models export net ");
  EXPECT_EQ(command(model("aoti", 8), kH200),
            "models export net --format aoti --batch 8 --device cuda ");
  EXPECT_EQ(command(model("aoti"), kCpu),
            "models export net --format aoti --batch 1 --device cpu ");
  // An export into another store would not help.
  named_ = true;
  EXPECT_EQ(command(model("torchscript"), kH200),
            "models export net --store " + folder_.path().string() + " ");
}

TEST_F(ModelStoreTest, DetectionModelResizesOnlyAnUnscaledInput) {
  store({torchscript("model.pt", true), torchscript("model_fixed.pt", false)}, "detection");
  ModelSpec scaled = model("torchscript");
  EXPECT_EQ(chosen(scaled, kH200), "model.pt");
  scaled.resize = {1440, 2560};
  EXPECT_EQ(chosen(scaled, kH200), "model_fixed.pt");
}

TEST_F(ModelStoreTest, APackageIsForOneBatchDeviceAndArchitecture) {
  store({compiled("cpu.pt2", 1, "cpu", ""), compiled("a100.pt2", 1, "cuda", "sm_80"),
         compiled("b1.pt2", 1, "cuda", "sm_90"), compiled("b8.pt2", 8, "cuda", "sm_90")});
  EXPECT_EQ(chosen(model("aoti"), kCpu), "cpu.pt2");
  EXPECT_EQ(chosen(model("aoti"), kH200), "b1.pt2");
  EXPECT_EQ(chosen(model("aoti", 8), kH200), "b8.pt2");
  EXPECT_NE(command(model("aoti", 2), kH200), "");
  EXPECT_NE(command(model("aoti"), TorchTarget{true, "sm_100", "2.11.0"}), "");
}

TEST_F(ModelStoreTest, APackageOfAnotherTorchIsRefusedATorchScriptFileIsNot) {
  // The package would load, and then crash or compute nonsense.
  store({compiled("b1.pt2", 1, "cuda", "sm_90"), torchscript("model.pt", false)});
  const TorchTarget newer{true, "sm_90", "2.12.0"};
  EXPECT_EQ(command(model("aoti"), newer),
            "models export net --format aoti --batch 1 --device cuda --force ");
  EXPECT_EQ(chosen(model("torchscript"), newer), "model.pt");
}

TEST_F(ModelStoreTest, Float32IsPreferredToOtherTypes) {
  store({torchscript("half.pt", false, "float16"), torchscript("model.pt", false)});
  EXPECT_EQ(chosen(model("torchscript"), kH200), "model.pt");
  store(json::array({torchscript("half.pt", false, "float16")}));
  EXPECT_EQ(chosen(model("torchscript"), kH200), "half.pt");
}

TEST_F(ModelStoreTest, ErrorForADamagedStoreNamesAForcedExport) {
  store(json::array({torchscript("model.pt", false)}));
  std::filesystem::remove(folder_.path() / "net/model.pt");
  EXPECT_EQ(command(model("torchscript"), kH200), "models export net --force ");
  static_cast<void>(folder_.write("net/model.json", R"({"variants": 3})"));
  EXPECT_EQ(command(model("torchscript"), kH200), "models export net --force ");
  static_cast<void>(folder_.write("net/model.json", R"({"task": "text", "variants": [3]})"));
  EXPECT_EQ(command(model("torchscript"), kH200), "models export net --force ");
}

TEST_F(ModelStoreTest, AFixedInputCannotBeScaledToAnotherSize) {
  store(json::array({compiled("b1.pt2", 1, "cuda", "sm_90")}));
  ModelSpec scaled = model("aoti");
  scaled.resize = {224, 224};
  EXPECT_EQ(chosen(scaled, kH200), "b1.pt2");
  scaled.resize = {448, 448};
  EXPECT_THROW((void)find_stored_model(place(), scaled, kH200, "e"), base::UsageError);
}

TEST(ModelStorePlace, FollowsOptionThenEnvironment) {
  setenv("SLUICE_MODELS", "/env", 1);
  EXPECT_EQ(model_store("/option").folder, "/option");
  EXPECT_TRUE(model_store("/option").named);
  EXPECT_EQ(model_store("").folder, "/env");
  EXPECT_FALSE(model_store("").named);
  unsetenv("SLUICE_MODELS");
  setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(model_store("").folder, "/data/sluice/models");
  unsetenv("XDG_DATA_HOME");
}

// Prevents: an imported model is served with one unnamed input, or in batches that it cannot take.
TEST_F(ModelStoreTest, AnImportedModelHasTheTensorsOfItsImport) {
  json variant{
      {"format", "torchscript"}, {"file", "model.pt"}, {"dtype", "float32"}, {"batch", "any"}};
  variant["inputs"] = {{{"name", "ids"}, {"datatype", "INT64"}, {"shape", {-1}}},
                       {{"name", "weight"}, {"datatype", "FP64"}, {"shape", json::array()}}};
  variant["outputs"] = {{{"name", "boxes"}, {"datatype", "FP32"}, {"shape", {-1, 4}}}};
  store(json::array({variant}), "imported");
  StoredModel found = find_stored_model(place(), model("torchscript"), kCpu, "e");
  ASSERT_EQ(found.inputs.size(), 2U);
  EXPECT_EQ(found.inputs[0].name, "ids");
  EXPECT_EQ(found.inputs[0].shape, std::vector<std::int64_t>{-1});
  EXPECT_EQ(found.inputs[1].type, DataType::kFp64);
  EXPECT_TRUE(found.inputs[1].shape.empty());
  ASSERT_EQ(found.outputs.size(), 1U);
  EXPECT_EQ(found.outputs[0].shape, (std::vector<std::int64_t>{-1, 4}));
  EXPECT_TRUE(found.batched);
  EXPECT_FALSE(found.vision);

  variant["batch"] = 0;
  variant["operators"] = {"torchvision"};
  store(json::array({variant}), "imported");
  found = find_stored_model(place(), model("torchscript"), kCpu, "e");
  EXPECT_FALSE(found.batched);
  EXPECT_TRUE(found.vision);

  variant["inputs"][0]["datatype"] = "FLOAT";
  store(json::array({variant}), "imported");
  EXPECT_THROW(static_cast<void>(find_stored_model(place(), model("torchscript"), kCpu, "e")),
               MissingModel);
}

}  // namespace
}  // namespace sluice::engine
