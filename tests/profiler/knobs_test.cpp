// The index of a program means the same on both sides of the pipe, in records and in packs.
// Prevents: a record that names another program than the one that was measured.
#include "profiler/packs/knobs.hpp"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/error.hpp"

namespace sluice::profiler {
namespace {

using nlohmann::json;
using testing::ElementsAre;

Knob split(const std::string& name, std::int64_t extent, std::size_t parts,
           std::int64_t innermost) {
  return {.name = name, .type = "sp", .extent = extent, .parts = parts, .max_innermost = innermost};
}

Knob option(const std::string& name, json values) {
  return {.name = name, .type = "ot", .values = std::move(values)};
}

TEST(Knobs, FactorisationsAreInLexicographicOrder) {
  EXPECT_THAT(factorisations(4, 2, 64),
              ElementsAre(ElementsAre(1, 4), ElementsAre(2, 2), ElementsAre(4, 1)));
  EXPECT_THAT(factorisations(6, 2, 2), ElementsAre(ElementsAre(3, 2), ElementsAre(6, 1)));
}

TEST(Knobs, ASpaceThatNoIndexCoversIsRefused) {
  const Knob two = option("k", {0, 1});
  EXPECT_EQ(ProgramSpace({Sketch(62, two)}).size(), std::uint64_t{1} << 62);
  EXPECT_THROW(ProgramSpace({Sketch(64, two)}), base::UsageError);
}

TEST(Knobs, FactorisationsAreAsManyAsCountedByHand) {
  // 2^6 into 4 parts: 9 over 3. 512 into 5: 13 over 4. AutoTVM's 64 into 4 has 84 too.
  EXPECT_EQ(factorisations(64, 4, 64).size(), 84U);
  EXPECT_EQ(factorisations(512, 5, 512).size(), 715U);
  EXPECT_EQ(factorisations(56, 3, 56).size(), 10U * 3U);
  EXPECT_EQ(factorisations(7, 1, 64).size(), 1U);
  EXPECT_EQ(factorisations(127, 1, 64).size(), 0U);
}

TEST(Knobs, TheFirstKnobIsTheLeastSignificant) {
  const ProgramSpace space({{split("tile", 4, 2, 64), option("unroll", {0, 16})}});
  ASSERT_EQ(space.size(), 6U);
  EXPECT_EQ(space.entity(space.choice(1)),
            json::parse(R"([["tile","sp",[2,2]],["unroll","ot",0]])"));
  EXPECT_EQ(space.entity(space.choice(3)),
            json::parse(R"([["tile","sp",[1,4]],["unroll","ot",16]])"));
}

TEST(Knobs, ASketchBeginsAfterTheOnesBefore) {
  const ProgramSpace space({{option("a", {1, 2, 3})}, {}, {option("b", {true, false})}});
  ASSERT_EQ(space.size(), 3U + 1U + 2U);
  EXPECT_EQ(space.choice(2), (Choice{0, {2}}));
  EXPECT_EQ(space.choice(3), (Choice{1, {}}));
  EXPECT_EQ(space.choice(5), (Choice{2, {1}}));
  EXPECT_THROW((void)space.choice(6), base::UsageError);
}

TEST(Knobs, EveryIndexOfASmallSpaceComesBack) {
  const ProgramSpace space({{split("x", 12, 3, 64), split("y", 8, 2, 4), option("u", {0, 16, 64})},
                            {split("z", 30, 2, 64)}});
  std::set<std::string> entities;
  for (std::uint64_t index = 0; index < space.size(); ++index) {
    const Choice choice = space.choice(index);
    EXPECT_EQ(space.index(choice), index);
    const json entity = space.entity(choice);
    EXPECT_EQ(space.choice(choice.sketch, entity), choice);
    entities.insert(std::to_string(choice.sketch) + entity.dump());
    EXPECT_EQ(space.numbers(choice).size(), space.numbers(space.choice(0)).size());
  }
  EXPECT_EQ(entities.size(), space.size()) << "no program has two indices";
}

TEST(Knobs, IndicesOfABigSpaceComeBack) {
  const ProgramSpace space({{split("co", 512, 5, 64), split("h", 56, 5, 64), split("w", 56, 5, 64),
                             split("ci", 512, 3, 64), option("u", {0, 16, 64, 512, 1024})}});
  ASSERT_GT(space.size(), std::uint64_t{1} << 32U);
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t index = random() % space.size();
    ASSERT_EQ(space.index(space.choice(index)), index);
  }
}

TEST(Knobs, WhatCannotBeASpaceIsRefused) {
  EXPECT_THROW(ProgramSpace({}), base::UsageError);
  EXPECT_THROW(ProgramSpace({{split("x", 127, 1, 64)}}), base::UsageError);
  const Sketch huge(8, split("x", 512, 5, 512));
  EXPECT_THROW(ProgramSpace({huge}), base::UsageError) << "715^8 is more than 2^63";
  const ProgramSpace space({{option("u", {0, 16})}});
  EXPECT_THROW((void)space.choice(0, json::parse(R"([["u","ot",7]])")), base::UsageError);
  EXPECT_THROW((void)space.choice(1, json::parse(R"([["u","ot",0]])")), base::UsageError);
  EXPECT_THROW((void)space.choice(0, json::array()), base::UsageError);
}

TEST(Knobs, ProgramsWithTooFewOrTooManyThreadsAreNotPlausible) {
  const ProgramSpace space({{split("y", 64, 5, 64), split("x", 64, 5, 64), split("k", 4096, 3, 64)},
                            {option("u", {0, 16})}});
  // The threads of a block are the third factors of the tiles with five parts, multiplied.
  const auto plausible = [&](std::int64_t y, std::int64_t x) {
    const json tile_y = {1, 1, y, 1, 64 / y};
    const json tile_x = {64 / x, 1, x, 1, 1};
    return space.plausible(space.choice(
        0, {{"y", "sp", tile_y}, {"x", "sp", tile_x}, {"k", "sp", json::array({1, 4096, 1})}}));
  };
  EXPECT_TRUE(plausible(8, 4));
  EXPECT_FALSE(plausible(8, 2)) << "16 threads are less than a warp";
  EXPECT_TRUE(plausible(32, 32));
  EXPECT_FALSE(plausible(32, 64)) << "2048 threads are more than a block has";
  EXPECT_TRUE(space.plausible({1, {0}})) << "nothing is known of a sketch without such tiles";
}

TEST(Knobs, TheTextIsThatOfAutoTvm) {
  const ProgramSpace space(
      {{split("tile_f", 64, 4, 64), option("auto_unroll_max_step", {0, 512})}});
  EXPECT_EQ(space.text(),
            "ConfigSpace (len=168, space_map=\n"
            "   0 tile_f: Split(policy=factors, product=64, num_outputs=4) len=84\n"
            "   1 auto_unroll_max_step: OtherOption([0,512]) len=2\n"
            ")\n");
}

}  // namespace
}  // namespace sluice::profiler
