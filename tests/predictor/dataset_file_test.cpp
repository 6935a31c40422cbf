// A data set that is not what was saved trains with the wrong times.
#include "predictor/train/dataset_file.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.hpp"
#include "synthetic.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::predictor {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DatasetFile, EverythingComesBack) {
  Dataset data = test::synthetic(3, 4, 7).data;
  data.networks = {{.name = "net", .target = "cuda", .batch = 8, .calls = {{0, {}}, {2, {0}}}}};
  const test::TempFolder folder;
  const std::string file = (folder.path() / "dataset.pt").string();
  save_dataset(file, data);
  const Dataset read = load_dataset(file);
  EXPECT_EQ(read.devices, data.devices);
  ASSERT_EQ(read.programs.size(), data.programs.size());
  for (std::size_t p = 0; p < data.programs.size(); ++p) {
    EXPECT_EQ(read.programs[p].id, data.programs[p].id);
    EXPECT_EQ(read.programs[p].task, data.programs[p].task);
    EXPECT_EQ(read.programs[p].index, data.programs[p].index);
    EXPECT_EQ(read.programs[p].leaves, data.programs[p].leaves);
    EXPECT_EQ(read.programs[p].positions, data.programs[p].positions);
  }
  ASSERT_EQ(read.labels.size(), data.labels.size());
  for (std::size_t i = 0; i < data.labels.size(); ++i) {
    EXPECT_EQ(read.labels[i].query, data.labels[i].query);
    EXPECT_EQ(read.labels[i].seconds, data.labels[i].seconds);
  }
  ASSERT_EQ(read.tasks.size(), 3U);
  EXPECT_EQ(read.tasks[1].name, "conv2d");
  EXPECT_EQ(read.tasks[1].flop, data.tasks[1].flop);
  EXPECT_EQ(read.tasks[1].bytes, data.tasks[1].bytes);
  ASSERT_EQ(read.networks.size(), 1U);
  EXPECT_EQ(read.networks[0].batch, 8);
  EXPECT_THAT(read.networks[0].calls[1].after, testing::ElementsAre(0));
}

TEST(DatasetFile, OtherFilesAreRefused) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "dataset.pt").string();
  EXPECT_THAT([&] { (void)load_dataset(file); },
              ThrowsMessage<base::UsageError>(HasSubstr("there is no data set")));
  std::ofstream(file) << "no archive";
  EXPECT_THAT([&] { (void)load_dataset(file); },
              ThrowsMessage<base::UsageError>(HasSubstr("is no data set of this version")));
}

}  // namespace
}  // namespace sluice::predictor
