// Records of failed, disturbed or foreign programs as labels teach a network wrong times.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "predictor/data/dataset_file.hpp"
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
  DatasetTest() {
    profiler::PackReader reader(kPack);
    while (const auto entry = reader.next()) {
      const auto* program = std::get_if<profiler::Program>(&*entry);
      if (program != nullptr && !program->source.empty()) programs_.push_back(*program);
    }
  }

  /// A good record of a program of the pack.
  profiler::Record record(std::size_t program, const std::string& device) {
    const auto& from = programs_.at(program);
    profiler::Record made;
    made.target = "cuda";
    made.task_name = pack_.tasks.at(from.task).name;
    made.seconds = {3e-5, 1e-5, 2e-5};
    made.details.emplace();
    made.details->task = from.task;
    made.details->program = from.id;
    made.details->device = device;
    made.details->spread = 1.01;
    made.details->registers = 48;
    made.details->spill_bytes = 8;
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
  std::vector<profiler::Program> programs_;  ///< Those with a source.
  test::TempFolder folder_;
};

TEST(Labels, ADeviceOfAProgramIsDroppedBeforeAProgram) {
  std::vector<Label> labels{{{7, 0}, 1}, {{7, 1}, 2}, {{8, 1}, 3}};
  keep_one_of_each_program(labels, 3);
  EXPECT_EQ(labels.size(), 3U) << "there are not too many";
  keep_one_of_each_program(labels, 2);
  ASSERT_EQ(labels.size(), 2U);
  EXPECT_EQ(labels[0].seconds, 1);
  EXPECT_EQ(labels[1].query.program, 8U);
}

TEST_F(DatasetTest, AProgramHasItsFeaturesAndTheMedianOfItsTimes) {
  write({record(5, "H200"), record(5, "H200@32"), record(9, "H200")});
  Dropped dropped;
  const Dataset data = make(dropped);
  EXPECT_EQ(data.programs.size(), programs_.size());
  EXPECT_EQ(data.tasks.size(), pack_.tasks.size());
  EXPECT_EQ(data.networks.size(), pack_.networks.size());
  ASSERT_EQ(data.labels.size(), 3U);
  EXPECT_THAT(data.devices, testing::ElementsAre("H200", "H200@32"));
  const Program& program = data.programs[data.labels[0].query.program];
  const auto& from = programs_[5];
  EXPECT_EQ(program.id, from.id);
  EXPECT_EQ(data.tasks[program.task].id, from.task);
  EXPECT_EQ(data.tasks[program.task].flop, pack_.tasks.at(from.task).flop);
  EXPECT_EQ(program.leaves, from.features.size());
  ASSERT_EQ(program.kernels.size(), from.kernels.size());
  EXPECT_EQ(program.kernels[0].blocks, static_cast<double>(from.kernels[0].blocks()));
  EXPECT_GT(program.kernels[0].counts.global_stores, 0) << "of its source";
  ASSERT_TRUE(program.compiled);
  EXPECT_EQ(program.compiled->registers, 48);
  EXPECT_EQ(program.compiled->spill_bytes, 8);
  EXPECT_DOUBLE_EQ(data.labels[0].seconds, 2e-5);
}

TEST(ProgramOf, NeedsTheSourceOfKernels) {
  profiler::Program program;
  program.id = "x";
  const auto refused = [&] {
    EXPECT_THAT([&] { (void)program_of(program); },
                ThrowsMessage<base::UsageError>(HasSubstr("program x has no source")));
  };
  program.source = "int x;";
  program.features = {std::vector<float>(164, 1)};
  refused();  // for a CPU
  program.source.clear();
  program.kernels = {{.name = "k"}};
  refused();
}

TEST_F(DatasetTest, SurvivesItsFile) {
  write({record(5, "H200"), record(9, "H200@32")});
  Dropped dropped;
  const Dataset data = make(dropped);
  const std::string file = folder_.file("dataset.cbor");
  save_dataset(file, data);
  const Dataset loaded = load_dataset(file);
  EXPECT_EQ(loaded.devices, data.devices);
  ASSERT_EQ(loaded.programs.size(), data.programs.size());
  const Program& program = loaded.programs[data.labels[0].query.program];
  EXPECT_EQ(program.compiled->registers, 48);
  EXPECT_FLOAT_EQ(
      static_cast<float>(program.kernels[0].counts.statements),
      static_cast<float>(data.programs[data.labels[0].query.program].kernels[0].counts.statements));
  ASSERT_EQ(loaded.labels.size(), 2U);
  EXPECT_EQ(loaded.labels[1].query, data.labels[1].query);
  EXPECT_EQ(loaded.labels[1].seconds, data.labels[1].seconds);
  EXPECT_EQ(loaded.networks.at(0).calls.size(), data.networks.at(0).calls.size());
  EXPECT_EQ(loaded.tasks.at(1).bytes, data.tasks.at(1).bytes);
  std::ofstream(file) << "something else";
  EXPECT_THAT([&] { (void)load_dataset(file); },
              ThrowsMessage<base::UsageError>(HasSubstr("is no data set of this version")));
  EXPECT_THAT([&] { (void)load_dataset(folder_.file("none")); },
              ThrowsMessage<base::UsageError>(HasSubstr("there is no ")));
}

// Numbers of what is not there would be read behind the end.
TEST_F(DatasetTest, PartsThatDoNotFitAreRefused) {
  write({record(5, "H200")});
  Dropped dropped;
  const Dataset right = make(dropped);
  const std::string file = folder_.file("dataset.cbor");
  const auto refused = [&](void (*change)(Dataset&), const char* why) {
    Dataset data = right;
    change(data);
    save_dataset(file, data);
    EXPECT_THAT([&] { (void)load_dataset(file); },
                ThrowsMessage<base::UsageError>(
                    HasSubstr(file + " is damaged (" + why + "); make one with")));
  };
  constexpr const char* kParts = "its parts do not fit each other";
  refused([](Dataset& data) { data.programs[3].task = data.tasks.size(); }, kParts);
  refused([](Dataset& data) { data.networks[0].calls[0].task = data.tasks.size(); }, kParts);
  refused([](Dataset& data) { data.labels[0].query.program = data.programs.size(); }, kParts);
  refused([](Dataset& data) { data.labels[0].query.device = 1; }, kParts);
  refused([](Dataset& data) { data.labels[0].seconds = 0; }, kParts);
  refused([](Dataset& data) { data.programs[2].kernels.clear(); }, "other counts of a kernel");
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

// The installed predictor has learned from these counts: with others it would be wrong, without any
// error. predictor/trained/make.sh makes both again.
TEST(Trained, HasTheCountsThatAreCountedNow) {
  const Dataset trained = load_dataset(SLUICE_TEST_PREDICTOR "/trained/dataset.cbor");
  std::map<std::string, const Program*> known;
  for (const Program& program : trained.programs) known[program.id] = &program;
  profiler::PackReader reader(SLUICE_TEST_DATA "/counted.programs");
  int compared = 0;
  while (const auto entry = reader.next()) {
    const auto* from = std::get_if<profiler::Program>(&*entry);
    if (from == nullptr || !known.contains(from->id)) continue;
    const Program now = program_of(*from);
    const Program& then = *known.at(from->id);
    ASSERT_EQ(now.kernels.size(), then.kernels.size());
    for (std::size_t k = 0; k < now.kernels.size(); ++k) {
      const auto was = then.kernels[k].counts.numbers();
      const auto is = now.kernels[k].counts.numbers();
      for (std::size_t i = 0; i < is.size(); ++i) {
        EXPECT_EQ(static_cast<float>(is[i]), was[i]) << from->id << ", count " << i;
      }
    }
    if (++compared == 80) break;
  }
  EXPECT_EQ(compared, 80);
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
  auto sourceless = record(7, "H200");
  const auto bare = std::ranges::find_if(pack_.programs, [this](const auto& program) {
    return std::ranges::find(programs_, program.id, &profiler::Program::id) == programs_.end();
  });
  sourceless.details->program = bare->id;
  write({failed, disturbed, uneven, brief, unknown, foreign, sourceless, record(7, "H200")});
  Dropped dropped;
  EXPECT_EQ(make(dropped).labels.size(), 1U);
  EXPECT_EQ(dropped.failed, 1U);
  EXPECT_EQ(dropped.disturbed, 1U);
  EXPECT_EQ(dropped.uneven, 1U);
  EXPECT_EQ(dropped.brief, 1U);
  EXPECT_EQ(dropped.unknown, 2U);
  EXPECT_EQ(dropped.sourceless, 1U);
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
  EXPECT_EQ(data.programs.size(), programs_.size());
  EXPECT_EQ(data.networks.size(), pack_.networks.size());
  EXPECT_EQ(data.labels.size(), 1U);
}

TEST_F(DatasetTest, ALaterPackMayHaveTheSource) {
  profiler::PackWriter bare(folder_.file("bare.programs"));
  bare.add(pack_.header);
  for (const auto& [id, task] : pack_.tasks) bare.add(task);
  for (const auto& program : pack_.programs) bare.add(program);  // read without sources
  bare.close();
  write({record(1, "H200")});
  Dropped dropped;
  const Dataset data = make_dataset(
      {folder_.file("bare.programs"), kPack, folder_.file("records.jsonl")}, true, dropped);
  EXPECT_EQ(data.labels.size(), 1U);
  EXPECT_EQ(dropped.sourceless, 0U);
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

TEST_F(DatasetTest, CountsAreATable) {
  Dataset data;
  data.programs = {{.id = "p", .kernels = {{.blocks = 3, .threads = 64, .counts = {.fma = 1.5}}}}};
  const std::string file = folder_.file("counts.csv");
  write_counts(file, data);
  EXPECT_THAT(test::read_file(file), testing::EndsWith("wavefronts\np,0,3,64,1.5,0,0,0,0\n"));
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
  const Task& task = data.task_of(data.labels[0].query);
  const auto programs = std::ranges::count(programs_, task.id, &profiler::Program::task);
  EXPECT_THAT(text.str(), testing::ContainsRegex(
                              fmt::format("{},{},[^\n]*,{},1,", task.id, task.name, programs)));
}

}  // namespace
}  // namespace sluice::predictor
