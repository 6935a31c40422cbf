// The config file of the published server must be read as it is, and every mistake in it named.
#include "server/models/config_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server {
namespace {

using testing::HasSubstr;

class ConfigFile : public testing::Test {
 protected:
  std::vector<ModelConfig> read(const std::string& text) {
    std::ofstream(file_) << text;
    return read_config(file_);
  }
  std::string fault(const std::string& text) {
    try {
      static_cast<void>(read(text));
    } catch (const base::UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(file_));
      return std::string(error.what()).substr(file_.size());
    }
    return "no fault";
  }

  test::TempFolder folder_;
  std::string file_ = folder_.file("config");
};

TEST_F(ConfigFile, ReadsThePublishedForm) {
  const auto models = read(
      "# models\n"
      "resnet152[2]\n"
      "  path        resnet152-b4\n"
      "  device      cuda\n"
      "\tbatch-size  4\n"
      "  num-worker  1   # the default\n"
      "\n"
      "dummy\n"
      "bert\r\n"
      "  path bert_base\r\n");
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].name, "resnet152");
  EXPECT_EQ(models[1].name, "resnet152-1");
  EXPECT_EQ(models[1].path, "resnet152-b4");
  EXPECT_EQ(models[1].batch_size, 4u);
  EXPECT_TRUE(models[1].batched);
  EXPECT_EQ(models[2].path, "dummy");
  EXPECT_EQ(models[3].path, "bert_base");
}

// Prevents: a model that runs with batches of nothing.
TEST_F(ConfigFile, ABatchSizeOfZeroMeansNoBatchDimension) {
  const auto models = read("m\n path p\n batch-size 0\n");
  EXPECT_FALSE(models.at(0).batched);
  EXPECT_EQ(models.at(0).batch_size, 1u);
}

TEST_F(ConfigFile, ReadsOurKeys) {
  const auto models = read(
      "m\n path p\n engine recording\n device cpu\n slo-ms 20.5\n priority 0\n max-delay-us 10000\n"
      " timeout-us 100000\n max-queue 7\n blocks 3\n preload no\n num-worker 2\n");
  const ModelConfig& model = models.at(0);
  EXPECT_EQ(model.engine, "recording");
  EXPECT_EQ(model.device, "cpu");
  EXPECT_EQ(model.slo_ms, 20.5);
  EXPECT_EQ(model.priority, 0);
  EXPECT_EQ(model.max_delay_us, 10'000u);
  EXPECT_EQ(model.timeout_us, 100'000u);
  EXPECT_EQ(model.max_queue, 7u);
  EXPECT_EQ(model.blocks, 3u);
  EXPECT_EQ(model.num_worker, 2u);
  EXPECT_FALSE(model.preload);
}

TEST_F(ConfigFile, ReadsTheGpusOfAModel) {
  const auto models = read(
      "a\n path p\n device cuda:1\nb\n path p\n device sim:2,0\nc\n path p\n device cpu\nd\n path "
      "p\n");
  EXPECT_EQ(models[0].device, "cuda");
  EXPECT_EQ(models[0].gpus, std::vector{1});
  EXPECT_EQ(models[1].device, "sim");
  EXPECT_EQ(models[1].gpus, (std::vector{2, 0}));
  EXPECT_EQ(models[2].device, "cpu");
  EXPECT_TRUE(models[3].gpus.empty());
  EXPECT_EQ(gpus_of(models[3]), std::vector{kNoGpu});
}

TEST_F(ConfigFile, NamesFileLineAndWhatIsAllowed) {
  EXPECT_THAT(fault("m\n path p\n bach-size 4\n"),
              HasSubstr(":3: unknown key 'bach-size', did you mean 'batch-size'?"));
  EXPECT_THAT(fault("m\n path p\n batch-size 4097\n"),
              HasSubstr(":3: batch-size: found '4097', allowed: a number from 0 to 4096"));
  EXPECT_THAT(fault("m\n path p\n batch-size 4x\n"), HasSubstr("found '4x'"));
  EXPECT_THAT(fault("m\n path p\n batch-size -1\n"), HasSubstr("found '-1'"));
  EXPECT_THAT(fault("m\n path p\n slo-ms nan\n"), HasSubstr("found 'nan'"));
  EXPECT_THAT(fault("m\n path p\n device gpu\n"), HasSubstr("allowed: cuda, cuda:N"));
  for (const char* bad : {"cuda:", "cuda:x", "cuda:0,", "cuda:-1", "cuda:32", "cpu:0", "sim:0;1"}) {
    EXPECT_THAT(fault(std::string("m\n path p\n device ") + bad + "\n"),
                HasSubstr(std::string(":3: device: found '") + bad + "', allowed: cuda"));
  }
  EXPECT_THAT(fault("m\n path p\n device cuda:1,0,1\n"), HasSubstr("allowed: each GPU once"));
  EXPECT_THAT(fault("m\n path p\n preload true\n"), HasSubstr("allowed: yes, no"));
  EXPECT_THAT(fault("m\n path\n"), HasSubstr(":2: path: found '', allowed: a value"));
  EXPECT_THAT(fault("m\n path p\n path q\n"), HasSubstr(":3: path: is given twice"));
  EXPECT_THAT(fault("m\n batch-size 4\n"), HasSubstr(":1: model m: path is missing"));
  EXPECT_THAT(fault("a\n path p\nm\n"), HasSubstr(":3: model m: path is missing"));
  EXPECT_THAT(fault(" path p\n"), HasSubstr(":1: found 'path p' before the first model"));
  EXPECT_THAT(fault("m[0]\n path p\n"), HasSubstr("found model 'm[0]'"));
  EXPECT_THAT(fault("a b\n path p\n"), HasSubstr("found model 'a b'"));
  EXPECT_THAT(fault("m[10000]\n path p\n"), HasSubstr("found model 'm[10000]'"));
  EXPECT_THAT(fault("m[2]\n path p\nm-1\n path p\n"), HasSubstr(":3: model m-1 is named twice"));
  EXPECT_THAT(fault("# nothing\n"), HasSubstr(": names no model"));
  EXPECT_THROW(static_cast<void>(read_config("/nonexistent/config")), base::UsageError);
}

TEST(ModelList, TakesNamesAndReplicas) {
  const auto models = parse_model_list("resnet50, bert_base[2]");
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].path, "resnet50");
  EXPECT_EQ(models[2].name, "bert_base-1");
  EXPECT_EQ(models[2].path, "bert_base");
  for (const char* bad : {"", "a,", "a,,b", "a,a", "a[x]", "a[", "a[]", "a]", "a[2", "a2]", "[2]",
                          "/etc", ".a", "-a"}) {
    EXPECT_THROW(static_cast<void>(parse_model_list(bad)), base::UsageError) << bad;
  }
}

// Prevents: a crash of the server by a client that asks to load a model with a long name.
TEST(ModelList, NamesHaveALimit) {
  EXPECT_TRUE(is_model_name("_A.b-9"));
  EXPECT_TRUE(is_model_name(std::string(128, 'a')));
  EXPECT_FALSE(is_model_name(std::string(129, 'a')));
  EXPECT_FALSE(is_model_name(std::string(4 << 20, 'a')));
  EXPECT_FALSE(is_model_name("a[2]"));
}

}  // namespace
}  // namespace sluice::server
