#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "engine/torch/split_target.hpp"
#include "tests/engine/torch/served_fixture.hpp"

namespace sluice::engine {
namespace {

using test::begin;
using test::Bytes;
using test::bytes_of;
using test::Input;
using test::run_blocks;
using testing::HasSubstr;

class Blocks : public test::ServedTest {
 protected:
  /// `count` of these cuts, in order.
  static std::vector<std::size_t> some_of(const std::vector<std::size_t>& cuts, std::size_t count,
                                          std::mt19937& random) {
    std::vector<std::size_t> some;
    std::ranges::sample(cuts, std::back_inserter(some), static_cast<long>(count), random);
    return some;
  }
};

TEST_F(Blocks, EveryModelIsTheSumOfItsBlocksToTheBit) {
  std::mt19937 random(1);
  int split = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_TEST_MODELS)) {
    const std::string name = entry.path().filename();
    if (name == "detector" || name == "two_inputs") continue;
    const auto whole = load(name, 1);
    const std::vector<Input> input{Input(whole->inputs()[0], 1, 3)};
    const Bytes wanted = run_blocks(*whole, input);
    const auto cuts = cuts_of(name);
    for (const std::size_t count : {1U, 4U}) {
      const auto some = some_of(cuts, count, random);
      const auto model = load(name, 1, some);
      EXPECT_EQ(model->blocks(), some.size() + 1);
      EXPECT_TRUE(run_blocks(*model, input) == wanted) << name << testing::PrintToString(some);
      split += some.size() == 4 ? 1 : 0;
    }
  }
  EXPECT_GE(split, 6);
}

TEST_F(Blocks, OfOneNodeEach) {
  for (const std::string name : {"residual", "bert_tiny"}) {
    const auto cuts = cuts_of(name);
    EXPECT_GE(cuts.size(), 8U) << name;
    const auto whole = load(name);
    const std::vector<Input> input{Input(whole->inputs()[0], 2, 3)};
    EXPECT_TRUE(run_blocks(*load(name, 2, cuts), input) == run_blocks(*whole, input)) << name;
  }
}

TEST_F(Blocks, PreemptedBatchKeepsItsState) {
  // The blocks of B run between those of A, in every cut of a model that works in place.
  const auto model = load("residual", 2, cuts_of("residual"));
  const std::vector<Input> input_a{Input(model->inputs()[0], 1, 1)};
  const std::vector<Input> input_b{Input(model->inputs()[0], 2, 2)};
  const Bytes wanted_a = run_blocks(*model, input_a);
  const Bytes wanted_b = run_blocks(*model, input_b);
  const auto a = begin(*model, input_a);
  const auto b = begin(*model, input_b);
  for (std::size_t block = 0; block < model->blocks(); ++block) {
    a->launch(block, 1);
    b->launch(block, 1);
  }
  EXPECT_TRUE(bytes_of(*a) == wanted_a);
  EXPECT_TRUE(bytes_of(*b) == wanted_b);
}

TEST_F(Blocks, PreemptedBatchKeepsItsStateNextToOneOfItsSize) {
  // On a GPU both batches run in the same memory.
  const auto model = load("residual", 2, cuts_of("residual"));
  const std::vector<Input> input_a{Input(model->inputs()[0], 2, 1)};
  const std::vector<Input> input_b{Input(model->inputs()[0], 2, 2)};
  const Bytes wanted_a = run_blocks(*model, input_a);
  const Bytes wanted_b = run_blocks(*model, input_b);
  for (std::size_t preempted = 1; preempted < model->blocks(); ++preempted) {
    const auto a = begin(*model, input_a);
    a->launch(0, preempted);
    EXPECT_TRUE(run_blocks(*model, input_b) == wanted_b) << preempted;
    a->launch(preempted, model->blocks() - preempted);
    EXPECT_TRUE(bytes_of(*a) == wanted_a) << preempted;
  }
}

TEST_F(Blocks, SeveralInOneLaunch) {
  const auto cuts = cuts_of("bert_tiny");
  const auto model = load("bert_tiny", 1, {cuts[1], cuts[5], cuts[9]});
  const std::vector<Input> input{Input(model->inputs()[0], 1, 1)};
  const auto batch = begin(*model, input);
  batch->launch(0, 3);
  batch->launch(3, 1);
  EXPECT_TRUE(bytes_of(*batch) == run_blocks(*model, input));
}

TEST_F(Blocks, OutOfOrderAreRefused) {
  // A batch has the state for its next block only; another one would compute nonsense.
  const auto model = load("residual", 1, {cuts_of("residual")[3]});
  const Input input(model->inputs()[0], 1, 1);
  const auto batch = begin(*model, {input});
  const auto refusal = [&](std::size_t block) -> std::string {
    try {
      batch->launch(block, 1);
      return "";
    } catch (const base::RunError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(1), "block 1 was launched, but block 0 is next");
  EXPECT_EQ(refusal(0), "");
  EXPECT_EQ(refusal(0), "block 0 was launched, but block 1 is next");
}

TEST_F(Blocks, UnknownCutsNameTheCommand) {
  const auto refusal = [](std::vector<std::size_t> cuts) -> std::string {
    try {
      static_cast<void>(load("residual", 1, std::move(cuts)));
      return "";
    } catch (const base::UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal({100000}), HasSubstr("cannot be cut at node 100000"));
  EXPECT_THAT(refusal({100000}), HasSubstr("`sluice split`"));
  EXPECT_NE(refusal({0}), "");
  const auto cuts = cuts_of("residual");
  EXPECT_NE(refusal({cuts[2], cuts[1]}), "");
  EXPECT_NE(refusal({cuts[2], cuts[2]}), "");
}

TEST_F(Blocks, CutsAreWhereOnlyTensorsAndListsOfThemLive) {
  const SplitTarget target(stored("residual"), {});
  EXPECT_TRUE(std::ranges::is_sorted(target.cuts(), {}, &Cut::node));
  EXPECT_TRUE(std::ranges::any_of(target.cuts(), [](const Cut& cut) { return cut.tensors >= 3; }));
  EXPECT_TRUE(std::ranges::any_of(target.cuts(), [](const Cut& cut) { return cut.tensors == 1; }));
  EXPECT_LT(target.cuts().size(), target.nodes());
}

TEST_F(Blocks, PrefixTimesAscendToTheEnd) {
  const SplitTarget target(stored("bert_tiny"), {});
  const auto ms = target.prefix_ms();
  ASSERT_EQ(ms.size(), target.cuts().size() + 1);
  EXPECT_TRUE(std::ranges::is_sorted(ms));
  EXPECT_GT(ms.back(), 0);
  const SplitTimes times = target.times({target.cuts()[2].node, target.cuts()[6].node}, 2);
  EXPECT_EQ(times.ms.size(), 3U);
  EXPECT_GT(times.whole_ms, 0);
}

}  // namespace
}  // namespace sluice::engine
