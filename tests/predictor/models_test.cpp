// A model that sees what it is tested with looks better than it is; one that forgets what it
// learned when it is saved looks as good as it was.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "predictor/model/model.hpp"
#include "profiler/packs/xz_bytes.hpp"
#include "synthetic.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::predictor {
namespace {

Lesson lesson_of(const test::Synthetic& made, const std::vector<Label>& train,
                 const std::vector<Label>& tune = {}) {
  return {made.data, made.devices, train, tune};
}

/// Every fifth task tests.
std::pair<std::vector<Label>, std::vector<Label>> split(const test::Synthetic& made,
                                                        std::size_t device) {
  std::pair<std::vector<Label>, std::vector<Label>> halves;
  for (const Label& label : made.on(device)) {
    const bool tests = made.data.programs[label.query.program].task % 5 == 0;
    (tests ? halves.second : halves.first).push_back(label);
  }
  return halves;
}

TEST(Models, TheGaussianLearnsMoreThanTheTimeModel) {
  const auto made = test::synthetic(25, 12, 4);
  const auto [train, test] = split(made, 0);
  const auto error = [&](const char* name) {
    const auto model = make_model(name, 1);
    model->fit(lesson_of(made, train));
    return test::error_of(*model, made, test);
  };
  EXPECT_LT(error("gaussian"), 0.12);
  EXPECT_LT(error("gaussian"), error("analytic"));
  EXPECT_LT(error("analytic"), 0.5);
}

TEST(Models, TimesThatFollowFromNothingAreNotLearned) {
  auto made = test::synthetic(25, 12, 4);
  for (std::size_t i = 0; i < made.data.labels.size(); ++i) {
    made.data.labels[i].seconds = (i * 7919) % 11 < 5 ? 1e-5 : 4e-5;
  }
  const auto [train, test] = split(made, 0);
  const auto model = make_model("gaussian", 1);
  model->fit(lesson_of(made, train));
  EXPECT_GT(test::error_of(*model, made, test), 0.4);
}

// One that is too long by a factor counts more than one too short, so a doubtful prediction is
// short.
TEST(Models, ADoubtfulPredictionIsShort) {
  auto made = test::synthetic(25, 12, 4);
  const auto ratio = [&] {
    const auto [train, test] = split(made, 0);
    const auto model = make_model("gaussian", 1);
    model->fit(lesson_of(made, train));
    const auto predicted = model->predict(made.data, made.devices, queries_of(test));
    double sum = 0;
    for (std::size_t i = 0; i < test.size(); ++i) sum += std::log(predicted[i] / test[i].seconds);
    return sum / static_cast<double>(test.size());
  };
  const double sure = ratio();
  for (std::size_t i = 0; i < made.data.labels.size(); ++i) {
    made.data.labels[i].seconds *= (i * 7919) % 11 < 5 ? 1.0 / 1.8 : 1.5;
  }
  EXPECT_GT(sure, -0.08);
  EXPECT_LT(ratio(), sure - 0.05);
  EXPECT_GT(ratio(), -0.4);
}

// rank and sche_search ask for programs that no compiler has seen.
TEST(Models, PredictsProgramsThatAreNotCompiled) {
  auto made = test::synthetic(25, 12, 4);
  for (std::size_t p = 0; p < made.data.programs.size(); ++p) {
    made.data.programs[p].compiled->registers = p % 2 == 0 ? 32 : 128;
  }
  for (Label& label : made.data.labels) {
    if (label.query.program % 2 == 0) label.seconds *= 2;
  }
  const auto [train, test] = split(made, 0);
  const auto model = make_model("gaussian", 1);
  model->fit(lesson_of(made, train));
  const double known = test::error_of(*model, made, test);
  for (Program& program : made.data.programs) program.compiled.reset();
  const double unknown = test::error_of(*model, made, test);
  EXPECT_LT(known, 0.2);
  EXPECT_GT(unknown, 1.5 * known) << "the registers were read";
  EXPECT_LT(unknown, 0.6);
}

TEST(Models, SurviveSaving) {
  const auto made = test::synthetic(10, 8, 5);
  auto half = made.on(1);
  half.resize(half.size() / 2);
  const test::TempFolder folder;
  for (const std::string& name : model_names()) {
    const auto model = make_model(name, 3);
    model->fit(lesson_of(made, made.on(0), half));
    save_model(folder.path(), name, *model);
    const auto loaded = load_model(folder.path());
    const auto queries = queries_of(made.on(1));
    EXPECT_THAT(loaded->predict(made.data, made.devices, queries),
                testing::ElementsAreArray(model->predict(made.data, made.devices, queries)))
        << name;
  }
}

TEST(Models, SaysWhichPredictorCannotBeRead) {
  const test::TempFolder folder;
  const auto refused = [&](const char* text) {
    EXPECT_THAT([&] { (void)load_model(folder.path()); },
                testing::ThrowsMessage<base::UsageError>(testing::HasSubstr(text)));
  };
  refused("there is no ");
  std::ofstream(folder.file("predictor.cbor")) << "text";
  refused("is no predictor of this version; `sluice predict train` makes one");
  EXPECT_THROW((void)make_model("transformer", 0), base::UsageError);
}

/// What versions that did not compress wrote: the CBOR in the file.
void take_out_of_xz(const std::string& file) {
  const std::string cbor = profiler::from_xz(test::read_file(file));
  std::ofstream(file) << cbor;
}

TEST(Models, AnUncompressedPredictorPredictsTheSame) {
  const auto made = test::synthetic(3, 4, 5);
  const auto half = made.on(1);
  const auto queries = queries_of(half);
  const test::TempFolder folder;
  const std::string file = folder.file("predictor.cbor");
  for (const std::string& name : model_names()) {
    const auto model = make_model(name, 3);
    model->fit(lesson_of(made, made.on(0), half));
    save_model(folder.path(), name, *model);
    const std::string compressed = test::read_file(file);
    take_out_of_xz(file);
    ASSERT_NE(test::read_file(file), compressed);
    EXPECT_THAT(load_model(folder.path())->predict(made.data, made.devices, queries),
                testing::ElementsAreArray(model->predict(made.data, made.devices, queries)))
        << name;
  }
}

TEST(Models, ADamagedCompressedPredictorIsRefused) {
  const auto made = test::synthetic(3, 4, 5);
  const test::TempFolder folder;
  const std::string file = folder.file("predictor.cbor");
  const auto model = make_model("analytic", 3);
  model->fit(lesson_of(made, made.on(0), made.on(1)));
  save_model(folder.path(), "analytic", *model);
  const std::string whole = test::read_file(file);
  for (std::size_t at = 6; at < whole.size(); ++at) {  // before: not the beginning of an xz file
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    std::ofstream(file) << bytes;
    EXPECT_THAT([&] { (void)load_model(folder.path()); },
                testing::ThrowsMessage<base::UsageError>(testing::HasSubstr(
                    file + " is damaged (the xz data is damaged); `sluice predict train` makes")));
  }
}

// A file that a disk or a copy has damaged is refused, or predicts something; it ends no program.
TEST(Models, ADamagedPredictorIsNoFault) {
  const auto made = test::synthetic(3, 4, 5);
  const auto half = made.on(1);
  const test::TempFolder folder;
  const std::string file = folder.file("predictor.cbor");
  std::mt19937_64 random(7);
  int refused = 0;
  for (const std::string& name : model_names()) {
    const auto model = make_model(name, 3);
    model->fit(lesson_of(made, made.on(0), half));
    save_model(folder.path(), name, *model);
    take_out_of_xz(file);
    const std::string whole = test::read_file(file);
    for (int i = 0; i < 300; ++i) {
      std::string bytes = whole;
      for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] ^= char(random());
      if (i % 3 == 0) bytes.resize(random() % bytes.size());
      std::ofstream(file) << bytes;
      try {
        (void)load_model(folder.path())->predict(made.data, made.devices, queries_of(half));
      } catch (const base::UsageError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500) << "a third of the files end too early";
}

TEST(Models, APredictorOfOtherFeaturesIsRefused) {
  auto made = test::synthetic(5, 8, 5);
  for (const char* name : {"gaussian", "ratio"}) {
    const auto model = make_model(name, 0);
    model->fit(lesson_of(made, made.on(0), made.on(1)));
    auto saved = model->saved();
    auto& process = name == std::string("ratio") ? saved["learned"] : saved["compiled"];
    for (const char* part : {"mean", "scale"}) process[part].get_binary().resize(8);
    process["points"].get_binary().resize(process["weights"].get_binary().size() / 4);
    model->restore(saved);
    EXPECT_THAT([&] { (void)model->predict(made.data, made.devices, queries_of(made.on(1))); },
                testing::ThrowsMessage<base::UsageError>(testing::HasSubstr("other features")))
        << name;
  }
}

TEST(Models, ACopiedTimeIsThatOfTheSameProgram) {
  const auto made = test::synthetic(4, 10, 3);
  const auto model = make_copied();
  model->fit(lesson_of(made, made.on(0)));
  EXPECT_NEAR(test::error_of(*model, made, made.on(1)), 2.0 / 3, 1e-9);
  const auto own = model->predict(made.data, made.devices, queries_of(made.on(0)));
  EXPECT_TRUE(std::isnan(own[0])) << "a program would be tested with its own time";
}

TEST(Models, WithoutATimeThereIsNoCopyAndNoRatio) {
  auto made = test::synthetic(4, 10, 3);
  std::erase_if(made.data.labels,
                [](const Label& label) { return label.query == Query{.program = 0, .device = 0}; });
  for (const char* name : {"copied", "ratio"}) {
    const auto model = make_model(name, 1);
    model->fit(lesson_of(made, made.on(0), made.on(1)));
    const auto predicted = model->predict(made.data, made.devices, queries_of(made.on(1)));
    EXPECT_TRUE(std::isnan(predicted[0])) << name;
    EXPECT_FALSE(std::isnan(predicted[1])) << name;
  }
}

// Tuned with a few tasks, the ratio must find more than the times of the other device say. The
// times of half of the tasks are three times as long there, those of the others equal.
TEST(Models, ARatioIsLearnedFromTheTuningTasks) {
  auto made = test::synthetic(40, 10, 4);
  for (Label& label : made.data.labels) {
    Program& program = made.data.programs[label.query.program];
    const bool slower = program.task % 2 == 0;
    program.kernels[0].counts.shuffles = slower ? 5 : 0;
    if (label.query.device == 1 && !slower) label.seconds /= 3;
  }
  std::vector<Label> tune;
  std::vector<Label> test;
  for (const Label& label : made.on(1)) {
    (made.data.programs[label.query.program].task < 20 ? tune : test).push_back(label);
  }
  const auto model = make_ratio(1);
  model->fit(lesson_of(made, made.on(0)));
  EXPECT_NEAR(test::error_of(*model, made, test), 1.0 / 3, 1e-9) << "untuned, it is a copy";
  model->fit(lesson_of(made, made.on(0), tune));
  EXPECT_LT(test::error_of(*model, made, test), 0.15);
}

}  // namespace
}  // namespace sluice::predictor
