// Records of failed, disturbed or foreign programs as labels teach a network wrong times.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "predictor/data/make_dataset.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::predictor {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kPack = SLUICE_TEST_DATA "/small.programs";

class DatasetTest : public testing::Test {
 protected:
  /// A good record of a program of the pack.
  profiler::Record record(std::size_t program, const std::string& device) {
    const auto& from = pack_.programs.at(program);
    profiler::Record made;
    made.target = "cuda";
    made.task_name = pack_.tasks.at(from.task).name;
    made.seconds = {3e-5, 1e-5, 2e-5};
    made.details.emplace();
    made.details->task = from.task;
    made.details->program = from.id;
    made.details->device = device;
    made.details->spread = 1.01;
    made.tvm_version = "0.27";
    return made;
  }

  void write(const std::vector<profiler::Record>& records) {
    std::ofstream out(folder_.path() / "records.jsonl");
    for (const auto& each : records) out << profiler::to_line(each) << '\n';
  }

  Dataset make(Dropped& dropped, bool need_labels = true) {
    return make_dataset({kPack, folder_.path().string()}, need_labels, dropped);
  }

  profiler::Pack pack_ = profiler::read_pack(kPack);
  test::TempFolder folder_;
};

TEST_F(DatasetTest, AProgramHasItsFeaturesAndTheMedianOfItsTimes) {
  write({record(5, "H200"), record(5, "H200@32"), record(9, "H200")});
  Dropped dropped;
  const Dataset data = make(dropped);
  EXPECT_EQ(data.programs.size(), pack_.programs.size());
  EXPECT_EQ(data.tasks.size(), pack_.tasks.size());
  EXPECT_EQ(data.networks.size(), pack_.networks.size());
  ASSERT_EQ(data.labels.size(), 3U);
  EXPECT_THAT(data.devices, testing::ElementsAre("H200", "H200@32"));
  const Program& program = data.programs[data.labels[0].query.program];
  const auto& from = pack_.programs[5];
  EXPECT_EQ(program.id, from.id);
  EXPECT_EQ(data.tasks[program.task].id, from.task);
  EXPECT_EQ(data.tasks[program.task].flop, pack_.tasks.at(from.task).flop);
  ASSERT_EQ(program.leaves.size(), from.features.size());
  EXPECT_EQ(program.leaves[0][17], from.features[0][17]);
  const auto launch = launch_features(from.kernels, pack_.tasks.at(from.task));
  for (const Leaf& leaf : program.leaves) {
    EXPECT_TRUE(std::equal(launch.begin(), launch.end(), leaf.begin() + kStoreFeatures));
  }
  EXPECT_EQ(program.positions[0], static_cast<std::int32_t>(from.position[0]));
  EXPECT_DOUBLE_EQ(data.labels[0].seconds, 2e-5);
}

TEST(LaunchFeatures, AreThoseOfTheLargestKernelAndTheWorstOfAll) {
  profiler::Kernel large{.name = "a", .grid = {7, 3, 1}, .block = {31, 5, 1}};
  large.shared = 1000;
  large.static_shared = 23;
  profiler::Kernel small{.name = "b", .grid = {3, 1, 1}, .block = {63, 1, 1}};
  small.static_shared = 500;
  small.local = 255;
  const profiler::Task task{.flop = 1e6,
                            .buffers = {{{100}, "float16", false}, {{50}, "int64", true}}};
  for (const auto& kernels : {std::vector{large, small}, std::vector{small, large}}) {
    const auto found = launch_features(kernels, task);
    // 2 kernels; 21 blocks of 155 threads; 189 more threads; 155 is 5 less than 5 warps.
    const double threads = 21 * 155 + 189;
    const std::array<double, kLaunchFeatures> expected{
        2, 21, 155, threads, 63, 5, 255, 1023, 1e6, 600, 1e6 / threads, 600 / threads};
    for (std::size_t i = 0; i < kLaunchFeatures; ++i) {
      EXPECT_FLOAT_EQ(found[i], static_cast<float>(std::log2(1 + expected[i]))) << i;
    }
  }
  EXPECT_EQ(launch_features({{.name = "c", .block = {64, 1, 1}}}, task)[5], 0) << "whole warps";
  const auto cpu = launch_features({}, task);
  EXPECT_EQ(cpu[0] + cpu[3], 0);
  EXPECT_EQ(cpu[8], cpu[10]) << "all flop in one thread";
}

TEST_F(DatasetTest, BytesAreThoseOfAllBuffers) {
  write({record(0, "H200")});
  Dropped dropped;
  const Dataset data = make(dropped);
  const Task& task = data.task_of(data.labels[0].query);
  double bytes = 0;
  for (const auto& buffer : pack_.tasks.at(task.id).buffers) {
    bytes += 4.0 * static_cast<double>(buffer.elements());
  }
  EXPECT_DOUBLE_EQ(task.bytes, bytes);
}

TEST_F(DatasetTest, DropsAndCountsWhatIsNoLabel) {
  auto failed = record(1, "H200");
  failed.error = profiler::MeasureError::kRuntimeDevice;
  auto disturbed = record(2, "H200");
  disturbed.details->disturbed = true;
  auto uneven = record(3, "H200");
  uneven.details->spread = 1.5;
  auto brief = record(4, "H200");
  brief.seconds = {5e-7};
  auto unknown = record(5, "H200");
  unknown.details->program = "0000000000000000";
  auto foreign = record(6, "H200");
  foreign.details.reset();
  write({failed, disturbed, uneven, brief, unknown, foreign, record(7, "H200")});
  Dropped dropped;
  EXPECT_EQ(make(dropped).labels.size(), 1U);
  EXPECT_EQ(dropped.failed, 1U);
  EXPECT_EQ(dropped.disturbed, 1U);
  EXPECT_EQ(dropped.uneven, 1U);
  EXPECT_EQ(dropped.brief, 1U);
  EXPECT_EQ(dropped.unknown, 2U);
}

TEST_F(DatasetTest, TheLaterOfTwoRecordsCounts) {
  auto later = record(1, "H200");
  later.seconds = {7e-5};
  write({record(1, "H200"), later, record(1, "H200@32")});
  Dropped dropped;
  const Dataset data = make(dropped);
  ASSERT_EQ(data.labels.size(), 2U);
  EXPECT_DOUBLE_EQ(data.labels[0].seconds, 7e-5);
  EXPECT_DOUBLE_EQ(data.labels[1].seconds, 2e-5);
  EXPECT_EQ(dropped.repeated, 1U);
}

// Packs come in pieces: the same network and task in each.
TEST_F(DatasetTest, ThePackTwiceIsThePackOnce) {
  write({record(1, "H200")});
  Dropped dropped;
  const Dataset data = make_dataset({kPack, kPack, folder_.path().string()}, true, dropped);
  EXPECT_EQ(data.programs.size(), pack_.programs.size());
  EXPECT_EQ(data.networks.size(), pack_.networks.size());
  EXPECT_EQ(data.labels.size(), 1U);
}

TEST_F(DatasetTest, AFolderMayHavePairsToo) {
  write({record(1, "H200")});
  std::ofstream(folder_.path() / "pairs.jsonl")
      << R"({"kind": "stream", "device": "H200", "programs": ["a", "b"]})" << '\n';
  Dropped dropped;
  EXPECT_EQ(make(dropped).labels.size(), 1U);
}

TEST_F(DatasetTest, SaysWhatIsMissing) {
  Dropped dropped;
  EXPECT_THAT([&] { (void)make(dropped); },
              ThrowsMessage<base::UsageError>(HasSubstr("no measured program")));
  EXPECT_EQ(make(dropped, false).labels.size(), 0U);
  EXPECT_THAT([&] { (void)make_dataset({"/nowhere"}, true, dropped); },
              ThrowsMessage<base::UsageError>(HasSubstr("there is no /nowhere")));
  EXPECT_THAT([&] { (void)make_dataset({SLUICE_TEST_PREDICTOR "/devices.csv"}, true, dropped); },
              ThrowsMessage<base::UsageError>(HasSubstr("neither a pack")));
  EXPECT_THAT([&] { (void)make_dataset({folder_.path().string()}, true, dropped); },
              ThrowsMessage<base::UsageError>(HasSubstr("no programs")));
}

TEST_F(DatasetTest, TasksAreATable) {
  write({record(1, "H200")});
  Dropped dropped;
  const Dataset data = make(dropped);
  const std::string file = (folder_.path() / "tasks.csv").string();
  write_tasks(file, data);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(std::ranges::count(text.str(), '\n'),
            static_cast<std::ptrdiff_t>(1 + data.tasks.size()));
  EXPECT_THAT(text.str(), HasSubstr(",softmax,cuda -arch=sm_90,16384,"));
}

}  // namespace
}  // namespace sluice::predictor
