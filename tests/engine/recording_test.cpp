#include "engine/recording/recording.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

std::string error_of(const std::string& text) {
  const test::TempFolder folder;
  const std::string file = folder.write("t.json", text);
  try {
    (void)read_recording(file);
  } catch (const base::UsageError& error) {
    return std::string(error.what()).substr(folder.path().string().size() + 1);
  }
  return "no error";
}

std::string recording_of(const std::string& rows) {
  return R"({"model":"m","gpu":"g","columns":["kind","name","grid","block","duration_ns","launch_ns"],)"
         R"("rows":[)" +
         rows + "]}";
}

TEST(Recording, KeepsKernelsInOrderAndCountsTheRest) {
  const test::TempFolder folder;
  const std::string file = folder.write(
      "t.json", recording_of(R"(["kernel","a",[2,3,4],[32,2,1],1500,-100],)"
                             R"(["memset","b",null,null,700,0],["memcpy","c",null,null,300,1],)"
                             R"(["kernel","d",[1,1,1],[1,1,1],10,900],)"
                             R"(["kernel","e",[1,1,1],[1,1,1],20,400])"));
  const Recording recording = read_recording(file);
  ASSERT_EQ(recording.kernels.size(), 3U);
  EXPECT_EQ(recording.kernels[0].blocks, 24U);
  EXPECT_EQ(recording.kernels[0].threads, 64U);
  EXPECT_EQ(recording.kernels[0].launch_ns, 0);
  EXPECT_EQ(recording.kernels[1].launch_ns, 1000);
  EXPECT_EQ(recording.kernels[2].launch_ns, 1000);  // never before the previous launch
  EXPECT_EQ(recording.left_out, 2U);
  EXPECT_EQ(recording.left_out_ns, 1000U);
  EXPECT_EQ(recording.kernels_ns(), 1530U);
}

// Prevents: a kernel has the name of another one, or kernels of two grids count as one.
TEST(Recording, KernelsOfOneNameGridAndBlockAreOneFunction) {
  const test::TempFolder folder;
  const Recording recording = read_recording(folder.write(
      "t.json",
      recording_of(R"(["kernel","a",[2,1,1],[32,1,1],1,0],["kernel","b",[2,1,1],[32,1,1],2,1],)"
                   R"(["kernel","a",[2,1,1],[32,1,1],3,2],["kernel","a",[3,1,1],[32,1,1],4,3],)"
                   R"(["kernel","a",[2,1,1],[64,1,1],5,4])")));
  std::vector<std::uint32_t> functions;
  for (const RecordedKernel& kernel : recording.kernels) functions.push_back(kernel.function);
  EXPECT_EQ(functions, (std::vector<std::uint32_t>{0, 1, 0, 2, 3}));
  EXPECT_EQ(recording.names, (std::vector<std::string>{"a", "b", "a", "a"}));
}

TEST(Recording, ErrorsNameFileAndPosition) {
  EXPECT_EQ(error_of("{").substr(0, 34), "t.json: not JSON: line 1, column 2");
  EXPECT_EQ(error_of("[]"),
            "t.json: /: found [], allowed: an object with model, gpu, columns, rows");
  EXPECT_EQ(error_of(recording_of("")),
            "t.json: /rows: no kernel in this recording, nothing to replay");
  EXPECT_EQ(error_of(recording_of(R"(["kernel","a",[1,1,1],[1,1,1],-1,0])")),
            "t.json: /rows/0/4: found -1, allowed: a whole number from 0 to 60000000000");
  EXPECT_EQ(error_of(recording_of(R"(["kernel","a",[1,1,1],[1,1,1],5])")),
            "t.json: /rows/0: found 5 cells, allowed: 6, as many as columns");
  EXPECT_EQ(error_of(recording_of(R"(["kernal","a",[1,1,1],[1,1,1],5,0])")),
            "t.json: /rows/0/0: found \"kernal\", allowed: kernel, memcpy or memset");
  EXPECT_EQ(error_of(recording_of(R"(["kernel","a",[1,1],[1,1,1],5,0])")),
            "t.json: /rows/0/2: found [1,1], allowed: [x, y, z], together at most 2147483647");
  EXPECT_EQ(error_of(recording_of(R"(["kernel","a",[1,1,1],[64,32,1],5,0])")),
            "t.json: /rows/0/3: found [64,32,1], allowed: [x, y, z], together at most 1024");
  EXPECT_EQ(error_of(R"({"model":"m","columns":["kind"],"rows":[]})"),
            "t.json: /columns: column \"grid\" is missing");
}

TEST(Recording, AllRecordingsOfTheTreeAreValid) {
  const std::map<std::string, std::size_t> kernels{
      {"bert_large_b1_s128", 216}, {"bert_large_b8_s512", 216}, {"fasterrcnn_1440", 664},
      {"fasterrcnn_720", 644},     {"mobilenet_v2_b1", 157},    {"resnet152_b1", 656},
      {"resnet152_b256", 691},     {"resnet50_b1", 218},        {"resnet50_train_b64", 955},
      {"vit_b_16_b8", 126}};
  const auto names = recording_names(SLUICE_TEST_RECORDINGS);
  ASSERT_EQ(names.size(), kernels.size());
  for (const std::string& name : names) {
    const Recording recording =
        read_recording(std::string(SLUICE_TEST_RECORDINGS) + "/" + name + ".json");
    EXPECT_EQ(recording.model, name);
    EXPECT_EQ(recording.kernels.size(), kernels.at(name)) << name;
  }
}

}  // namespace
}  // namespace sluice::engine
