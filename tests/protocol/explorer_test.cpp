#include <gtest/gtest.h>

#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

/// Tests of the checker: a checker that misses an interleaving proves nothing.
namespace sluice::protocol {
namespace {

/// `bits |= 1 << actor`: with load and store, which lose updates, or with fetch_or, which does not.
Scenario counters(int actors, bool atomic) {
  Scenario scenario{.name = "Counters", .processes = {{"all"}}};
  for (int a = 0; a < actors; ++a) {
    scenario.actors.push_back({"actor", 0, {{"add", [=](ModelView& board, bool) {
                                               const std::uint64_t bit = std::uint64_t{1} << a;
                                               if (atomic) {
                                                 board.job(0).fetch_or(bit);
                                               } else {
                                                 board.job(0).store(board.job(0).load() | bit);
                                               }
                                               return true;
                                             }}}});
  }
  scenario.setup = [](ModelView&) {};
  return scenario;
}

// Three actors that lose updates: the result always contains the last writer's bit, and any of the
// others.
TEST(Explorer, FindsEveryLostUpdate) {
  for (const bool reduce : {true, false}) {
    EXPECT_EQ(explore(with_tick(counters(3, false)), {.reduce = reduce}).ends, 7U);
    EXPECT_EQ(explore(with_tick(counters(3, true)), {.reduce = reduce}).ends, 1U);
  }
}

TEST(Explorer, CountsTheInterleavings) {
  // Actors with one step each that commute: one state for each set of actors that have run.
  EXPECT_EQ(explore(with_tick(counters(2, true)), {.reduce = false}).states, 4U);
  EXPECT_EQ(explore(with_tick(counters(3, true)), {.reduce = false}).states, 8U);
}

TEST(Explorer, KillsAtEveryStep) {
  Scenario scenario{.name = "Steps", .processes = {{"mortal", Mortality::kSudden}}};
  scenario.actors = {{"writer", 0, {{"write", [](ModelView& board, bool) {
                                       for (int i = 0; i < 5; ++i) board.job(0).fetch_add(2);
                                       return true;
                                     }}}}};
  scenario.setup = [](ModelView&) {};
  // Alive at the end, or dead after 0 to 5 writes.
  EXPECT_EQ(explore(with_tick(scenario)).ends, 7U);
}

TEST(Explorer, ReportsACallThatDoesNotEnd) {
  Scenario scenario{.name = "Spin", .processes = {{"all"}}};
  scenario.actors = {{"spinner", 0, {{"spin", [](ModelView& board, bool) {
                                        while (board.job(0).load() == 0) {
                                        }
                                        return true;
                                      }}}}};
  scenario.setup = [](ModelView&) {};
  EXPECT_TRUE(explore(with_tick(scenario)).violation);
}

TEST(Explorer, ReportsAnActorThatNeverGoesOn) {
  Scenario scenario{.name = "Wait", .processes = {{"all"}}};
  scenario.actors = {{"waiter", 0, {once(done(0, 1), begin_job(0))}}};
  scenario.setup = [](ModelView&) {};
  EXPECT_TRUE(explore(with_tick(scenario)).violation);
}

TEST(Explorer, ReportsABrokenInvariant) {
  Scenario scenario{.name = "Broken", .processes = {{"owner", {}, 0}}};
  scenario.actors = {{"writer", 0, {{"write", [](ModelView& board, bool) {
                                       board.gate(0).fetch_or(2);
                                       return true;
                                     }}}}};
  scenario.setup = [](ModelView& board) { attached(board, 0, 0); };
  EXPECT_TRUE(explore(with_tick(scenario)).violation);
}

// The reduction may omit interleavings, but never an end state.
TEST(Explorer, ReductionKeepsEveryEndState) {
  int compared = 0;
  for (const Scenario& scenario : all_scenarios()) {
    static const std::vector<std::string> kSmall{"TwoHolders",
                                                 "OtherDevicePriority",
                                                 "HolderLowered",
                                                 "HolderRaised",
                                                 "HolderLeavesAndIsGone",
                                                 "ControllerDiesChangingPriority",
                                                 "HolderStoppedTargetOpen",
                                                 "TargetLeaves",
                                                 "EqualPriorities"};
    if (std::find(kSmall.begin(), kSmall.end(), scenario.name) == kSmall.end()) continue;
    SCOPED_TRACE(scenario.name);
    const Result reduced = explore(with_tick(scenario));
    const Result full = explore(with_tick(scenario), {.reduce = false});
    ASSERT_FALSE(reduced.violation) << *reduced.violation;
    ASSERT_FALSE(full.violation) << *full.violation;
    EXPECT_EQ(reduced.end_states, full.end_states);
    EXPECT_LT(reduced.states, full.states);
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

}  // namespace
}  // namespace sluice::protocol
