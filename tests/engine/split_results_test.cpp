#include <gmock/gmock.h>

#include "base/error.hpp"
#include "engine/split/results.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

const MeasuredTarget kTarget{"/store/net/model.pt", 1000, 50, "sm_90", "2.11.0", 8};

class SplitLog : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "split-log.json"; }

  test::TempFolder folder_;
  const CandidateTimes times_{{{10, 30}, {{1.5, 1.25, 1.75}, 4.25}},
                              {{11, 30}, {{1.0, 2.0, 1.5}, 4.5}}};
};

TEST_F(SplitLog, TimesOfTheSameTargetAreTakenOver) {
  EXPECT_TRUE(read_log(file(), kTarget).empty());
  write_log(file(), kTarget, "tag", times_);
  EXPECT_EQ(read_log(file(), kTarget), times_);
}

TEST_F(SplitLog, TimesOfAnotherTargetAreNot) {
  // They would make an uneven split look even.
  write_log(file(), kTarget, "", times_);
  std::vector<MeasuredTarget> others(6, kTarget);
  others[0].file = "/store/net/model_fixed.pt";
  others[1].file_bytes = 1001;
  others[2].nodes = 51;
  others[3].gpu = "cpu";
  others[4].torch = "2.12.0";
  others[5].batch = 1;
  for (const MeasuredTarget& other : others) EXPECT_TRUE(read_log(file(), other).empty());
}

TEST_F(SplitLog, ADamagedOneIsNamed) {
  for (const std::string text : {"{", "{}", R"({"target": 3})"}) {
    static_cast<void>(folder_.write("split-log.json", text));
    try {
      const auto times = read_log(file(), kTarget);
      EXPECT_EQ(text, R"({"target": 3})");
      EXPECT_TRUE(times.empty());
    } catch (const base::UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(file().string()));
    }
  }
}

TEST(SplitResults, HaveThePublishedColumns) {
  const test::TempFolder folder;
  {
    ResultsFile results(folder.file("r.csv"), "net");
    results.add({.step = 4, .measured = 30, .best = rate({7, 9}, {4, 4, 4}, 10)});
  }
  EXPECT_EQ(test::read_file(folder.file("r.csv")),
            "step, model-name, std, solution-best, runtime-bench (ms), overhead, total cost (ms)\n"
            "4, net, 0.000000, \"[7, 9]\", 10.000000, 0.200000, 12.000000\n");
}

}  // namespace
}  // namespace sluice::engine
