// Tuning of a task without TVM and without measuring. Prevents: a task that never ends because its
// space refuses all programs, and results that reach the tuner for another program.
#include "profiler/tuning/tuning.hpp"

#include <gmock/gmock.h>

#include <set>

#include "profiler/tuner/trees.hpp"
#include "profiler/tuning/results.hpp"

namespace sluice::profiler {
namespace {

Task task_of(std::uint64_t programs) {
  Knob knob{.name = "n", .type = "ot"};
  for (std::uint64_t i = 0; i < programs; ++i) knob.values.push_back(i);
  Task task;
  task.sketches = {{knob}};
  return task;
}

Program program_of(std::uint64_t index) {
  Program program;
  program.index = index;
  return program;
}

/// Makes the programs that `good` wants. A program takes a second more than its index says.
class Bench {
 public:
  explicit Bench(std::function<bool(std::uint64_t)> good) : good_(std::move(good)) {}

  std::vector<Record> tune(std::uint64_t programs, const TuningOptions& options) {
    const TuningCalls calls{
        .make = [&](const auto& indices) { return make(indices); },
        .measure = [&](const auto& made,
                       const OnRecord& on_record) { return measure(made, on_record); },
        .features = {},
        .predicted =
            [&](const auto& indices) {
              std::vector<float> rated;
              for (const auto index : indices) {
                rated.push_back(good_(index) ? -static_cast<float>(index) : -INFINITY);
              }
              return rated;
            }};
    return tune_task(task_of(programs), options, calls, known,
                     [&](const Record& record) { seen.push_back(record.index); });
  }

  KnownRecords known;  ///< Of an earlier run.
  std::set<std::uint64_t> disturbed;
  std::vector<std::size_t> rounds;      ///< Programs of each measurement.
  std::vector<std::uint64_t> proposed;  ///< Indices that were looked at.
  std::vector<std::uint64_t> seen;      ///< Of the records.

 private:
  std::vector<std::optional<Program>> make(const std::vector<std::uint64_t>& indices) {
    std::vector<std::optional<Program>> made;
    for (const std::uint64_t index : indices) {
      proposed.push_back(index);
      made.push_back(good_(index) ? std::optional(program_of(index)) : std::nullopt);
    }
    return made;
  }

  std::vector<Record> measure(const std::vector<Program>& programs, const OnRecord& on_record) {
    rounds.push_back(programs.size());
    std::vector<Record> records;
    for (const Program& program : programs) {
      Record& record = records.emplace_back();
      record.index = program.index;
      record.seconds = {static_cast<double>(program.index + 1)};
      record.details.emplace().disturbed = disturbed.contains(program.index);
      on_record(record);
    }
    return records;
  }

  std::function<bool(std::uint64_t)> good_;
};

TEST(TuneTask, ARoundIsMeasuredAtOnceAlsoWhereMostAreRefused) {
  Bench bench([](std::uint64_t index) { return index % 30 == 7; });
  const auto records = bench.tune(100'000, {"gridsearch", 150, 0});
  EXPECT_THAT(bench.rounds, testing::ElementsAre(64, 64, 22));
  ASSERT_EQ(records.size(), 150U);
  for (std::size_t i = 0; i < 150; ++i) EXPECT_EQ(records[i].index, 30 * i + 7);
  EXPECT_EQ(bench.seen.size(), 150U);
  EXPECT_LT(bench.proposed.size(), 30U * 150 + 64) << "hardly more programs than are measured";
}

TEST(TuneTask, WhatWasMadeBeyondARoundIsMeasuredInTheNext) {
  Bench bench([](std::uint64_t index) { return index >= 100; });
  const auto records = bench.tune(100'000, {"gridsearch", 150, 0});
  ASSERT_EQ(records.size(), 150U);
  for (std::size_t i = 0; i < 150; ++i) EXPECT_EQ(records[i].index, 100 + i);
  EXPECT_THAT(bench.rounds, testing::ElementsAre(64, 64, 22));
}

TEST(TuneTask, NoMoreProgramsAreMadeThanAreMeasured) {
  Bench bench([](std::uint64_t) { return true; });
  EXPECT_EQ(bench.tune(100'000, {"random", 70, 0}).size(), 70U);
  EXPECT_EQ(bench.proposed.size(), 70U);
}

TEST(TuneTask, ASpaceThatRefusesAllIsGivenUp) {
  Bench bench([](std::uint64_t) { return false; });
  EXPECT_THAT(bench.tune(100'000, {"random", 3000, 0}), testing::IsEmpty());
  EXPECT_LT(bench.proposed.size(), 10'000U) << "TVM needs up to seconds for each";
  EXPECT_GE(bench.proposed.size(), 6400U) << "of some convolutions, one of 50 is good";
  bench.proposed.clear();
  EXPECT_THAT(bench.tune(100'000, {"random", 2, 0}), testing::IsEmpty());
  EXPECT_LT(bench.proposed.size(), 300U);
}

TEST(TuneTask, GoesOnWithTheTrialsOfAnEarlierRun) {
  for (const std::string tuner : {"random", "ga", "xgb_knob"}) {
    if (tuner == "xgb_knob" && !has_xgboost()) continue;
    const auto good = [](std::uint64_t index) { return index % 3 != 1; };
    Bench whole(good);
    const auto records = whole.tune(100'000, {tuner, 150, 7});
    Bench rest(good);
    for (std::size_t i = 0; i < 100; ++i) rest.known[records[i].index] = records[i];
    const auto resumed = rest.tune(100'000, {tuner, 150, 7});
    ASSERT_EQ(resumed.size(), records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(resumed[i].index, records[i].index) << tuner << ": the same trials";
    }
    EXPECT_EQ(rest.seen.size(), 50U) << "only these are new";
    EXPECT_EQ(rest.rounds.front() + rest.rounds.at(1) + rest.rounds.back(), 50U);
  }
}

TEST(TuneTask, ATunerLearnsNothingFromADisturbedTime) {
  const auto proposed = [](const std::string& tuner, bool disturbed) {
    Bench bench([](std::uint64_t) { return true; });
    for (std::uint64_t i = 0; disturbed && i < 1000; ++i) bench.disturbed.insert(i);
    EXPECT_EQ(bench.tune(1000, {tuner, 150, 1}).size(), 150U);
    return bench.proposed;
  };
  EXPECT_EQ(proposed("ga", true), proposed("random", true)) << "it knows of no parents";
  EXPECT_NE(proposed("ga", false), proposed("random", false));
}

class TuneTaskWith : public testing::TestWithParam<std::string> {};

TEST_P(TuneTaskWith, ASpaceWithFewerProgramsThanTrialsIsMeasuredOnce) {
  for (const std::uint64_t size : {1U, 2U, 65U}) {
    Bench bench([](std::uint64_t index) { return index % 3 != 1; });
    const auto records = bench.tune(size, {GetParam(), 3000, 0});
    EXPECT_EQ(bench.proposed.size(), size);
    EXPECT_EQ(std::set(bench.proposed.begin(), bench.proposed.end()).size(), size);
    EXPECT_EQ(records.size(), size - (size + 1) / 3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TuneTaskWith,
                         testing::Values("random", "gridsearch", "ga", "predict"));

TEST(LatencyOf, IsTheSumOverTheCallsOrInfinite) {
  Record fast;
  fast.seconds = {1e-3, 3e-3};
  Record failed;
  failed.error = MeasureError::kWrongAnswer;
  Record slow;
  slow.seconds = {4e-3, 4e-3};
  std::vector<TunedTask> tasks{{"a", 2, {failed, slow, fast}}, {"b", 1, {slow}}};
  const auto best = [](const TunedTask& task) { return task.best(task.trials.size()); };
  EXPECT_DOUBLE_EQ(latency_of(tasks, best).mean, 2 * 2 + 4);
  EXPECT_DOUBLE_EQ(latency_of(tasks, best).std, 2);
  EXPECT_DOUBLE_EQ(latency_of(tasks, [](const auto& task) { return task.first(); }).mean,
                   2 * 4 + 4);
  tasks.push_back({"c", 1, {failed}});
  EXPECT_EQ(latency_of(tasks, best).mean, INFINITY);
}

}  // namespace
}  // namespace sluice::profiler
