// Whose turn it is.
#include "tests/intercept/turns.hpp"

namespace sluice::intercept::test {
namespace {

// Prevents: turns of a client that cannot have any.
TEST_F(Turns, NobodyWaitsForOneWithoutAThread) {
  const int a = add(1);
  const int b = add(1);
  program(b).looks = false;
  run(1000);
  EXPECT_LT(program(a).longest_wait_ns, 3 * kMs);
}

// Prevents: a program waits for ever whose queued work belongs to no job: nobody gives it a turn.
TEST_F(Turns, NobodyIsHeldWithoutAJob) {
  const int a = add(1);
  const int b = add(1);
  run(100);
  slot(b).job.fetch_add(1);
  run(60);
  EXPECT_EQ(slot(b).gate.load() & shm::bit(b), 0U);
  EXPECT_NE(slot(a).turn.until_ns.load(), 0U) << "the other one goes on";
}

// Prevents: who comes from another priority has all the turns, or none, until the counts are equal.
TEST_F(Turns, CountsOfAnotherPriorityMeanNothing) {
  const int a = add(1, 1);
  add(1, 1);
  run(3000);
  const int c = add(1);
  const int d = add(1);
  run(200);
  set_state(a, shm::SlotState::kLive, 0);  // from an old group into a young one
  run(100);
  for (const int i : {a, c, d}) program(i).served_ns = 0;
  run(900);
  for (const int i : {c, d}) EXPECT_NEAR(served_ms(i) / served_ms(a), 1, 0.25) << i;
  set_state(d, shm::SlotState::kLive, 1);  // and back
  run(100);
  for (const int i : {1, d}) program(i).served_ns = 0;
  run(900);
  EXPECT_NEAR(served_ms(d) / served_ms(1), 1, 0.15);
}

// Prevents: a turn without an end, after a holder died between opening the gate and counting.
TEST_F(Turns, AHoldThatIsNeverCountedEndsWithItsHolder) {
  const int a = add(1);
  const int b = add(1);
  hold_all(true);
  run(500);
  held_ = false;
  for (const int i : {a, b}) slot(i).closed_since_ns.store(0);  // and nothing is added
  for (const int i : {a, b}) program(i).served_ns = 0;
  run(1000);
  EXPECT_NEAR(served_ms(a) / served_ms(b), 1, 0.2);
}

// Prevents: two that take a vacant turn at once keep it, or both give it back.
TEST_F(Turns, OfTwoThatTakeATurnAtOnceOneKeepsIt) {
  latest_ns_ = 0;
  const int a = add(1);
  const int b = add(1);
  for (const int i : {a, b}) slot(i).turn.takes.store(1);
  const TurnRule::Decision one = program(a).rule.look(*board_, a, now_);
  const TurnRule::Decision other = program(b).rule.look(*board_, b, now_);
  ASSERT_TRUE(one.runs && other.runs);
  obey(a, one);
  obey(b, other);
  run(19);
  EXPECT_LT(shared_ns_, 3 * kMs);
  EXPECT_LT(unused_ns_, kMs);
}

// Prevents: short pauses of a program, in which its host thinks, that add up to the end of a turn.
TEST_F(Turns, ATurnSurvivesShortPauses) {
  latest_ns_ = 0;
  const int a = add(1);
  add(1);
  run(60);
  for (const int turns = program(a).turns; program(a).turns == turns;) run(1);
  for (int i = 0; i < 12; ++i) {
    slot(a).job.fetch_add(1);  // it pauses for half a millisecond, and then works for as long
    now_ += kMs / 2;
    EXPECT_NE(program(a).rule.look(*board_, a, now_).until_ns, 0U) << i;
  }
}

// Prevents: a program that comes back from a pause and is held although nobody runs.
TEST_F(Turns, WhereNobodyRunsEverybodyMay) {
  const int a = add(1);
  const int b = add(1);
  give_work(a, kMs);
  give_work(b, kMs);
  run(200);
  for (int i = 0; i < 20; ++i) {
    for (const int one : {a, b}) {
      program(one).longest_wait_ns = 0;
      give_work(one, 5 * kMs);
      run(10 + static_cast<std::uint64_t>(i));
      EXPECT_LT(program(one).longest_wait_ns, kMs) << one;
    }
  }
}

// Prevents: a stopped program takes all the turns that it has missed.
TEST_F(Turns, WhoWasStoppedGetsNothingBack) {
  const int a = add(1);
  const int b = add(1);
  const int c = add(1);
  run(200);
  stop(c, 3000);
  run(3050);
  for (const int i : {a, b, c}) program(i).served_ns = 0;
  run(900);
  EXPECT_NEAR(served_ms(a), 300, 40);
  EXPECT_NEAR(served_ms(c), 300, 40);
}

TEST_F(Turns, OnesOfWeightThreeAndOneGetThreeQuartersAndOne) {
  const int a = add(3);
  const int b = add(0);
  run(4000);
  EXPECT_NEAR(served_ms(a) / served_ms(b), 3, 0.06);
  EXPECT_GT(served_ms(a) + served_ms(b), 0.98 * 4000);
  EXPECT_LT(static_cast<double>(shared_ns_) / kMs, 40);
}

TEST_F(Turns, TurnsAreLongAgainstASwitch) {
  const int a = add(1);
  const int b = add(1);
  run(2000);
  EXPECT_NEAR(program(a).turns, 50, 3);
  EXPECT_NEAR(program(b).turns, 50, 3);
  EXPECT_LT(program(a).longest_wait_ns, 22 * kMs);
}

// Prevents: a great weight that starves a small one.
TEST_F(Turns, ASmallWeightWaitsTwoSecondsAtMost) {
  const int a = add(1000);
  const int b = add(1);
  run(9000);
  EXPECT_LT(program(b).longest_wait_ns, 2200 * kMs);
  EXPECT_GT(served_ms(b), 8);
  EXPECT_NEAR(served_ms(a) / served_ms(b), 1000, 250);
  EXPECT_LT(program(b).turns, 10) << "they are long against a switch";
}

// Prevents: the last kernel of a turn runs on next to the next owner, at half the speed of both.
TEST_F(Turns, TheNextOneBeginsWhenTheGpuHasComeToTheGate) {
  const int a = add(1);
  const int b = add(1);
  for (const int i : {a, b}) program(i).kernel_ns = 6 * kMs;
  run(3000);
  EXPECT_LT(static_cast<double>(shared_ns_) / kMs, 30);
  EXPECT_LT(static_cast<double>(unused_ns_) / kMs, 60) << "and at once";
  EXPECT_NEAR(program(a).turns, 3000 / (2 * 26), 3);
  EXPECT_NEAR(served_ms(a) / served_ms(b), 1, 0.1);
}

// Prevents: a kernel of a second keeps everybody waiting that long.
TEST_F(Turns, ForALongKernelNobodyWaitsForLong) {
  const int a = add(1);
  const int b = add(1);
  program(a).kernel_ns = 1000 * kMs;
  run(1000);
  EXPECT_LT(program(b).longest_wait_ns, 45 * kMs) << "a turn, and as much for what is left of it";
}

// The time of the last kernel is that of its owner.
TEST_F(Turns, WhoseKernelsAreLongHasFewerTurns) {
  const int a = add(1);
  const int b = add(1);
  program(a).kernel_ns = 15 * kMs;
  run(4000);
  EXPECT_NEAR(served_ms(a) + program(a).turns * 15.0, served_ms(b), 160);
}

/// Nobody had work. One runs without a turn when another one begins its turn.
class OneRunsOpen : public Turns {
 protected:
  void SetUp() override {
    Turns::SetUp();
    a_ = add(1);
    b_ = add(1);
    run(100);
    for (const int each : {a_, b_}) give_work(each, 0);
    run(50);
    for (const int each : {a_, b_}) {
      ASSERT_EQ(slot(each).turn.until_ns.load(), 0U);
      ASSERT_EQ(slot(each).gate.load() & shm::bit(each), 0U);
      give_work(each, kNever);
    }
    program(a_).look_ns = now_ + 20 * kMs;
    program(b_).look_ns = now_;
  }
  void until_b_has_the_turn() {
    for (int i = 0; i < 600 && slot(b_).turn.until_ns.load() == 0; ++i) {
      now_ += kStepNs;
      for (const int each : {a_, b_}) look(each);
      serve();
    }
    ASSERT_NE(slot(b_).turn.until_ns.load(), 0U);
  }
  [[nodiscard]] double used_ms(int index) {
    return static_cast<double>(slot(index).turn.used.load()) / kMs;
  }
  int a_ = 0;
  int b_ = 0;
};

// Prevents: it runs in the turn of the other one for as long as it sleeps.
TEST_F(OneRunsOpen, ItIsCalledWhenAnotherOneBegins) {
  until_b_has_the_turn();
  run(1);
  EXPECT_NE(slot(a_).gate.load() & shm::bit(a_), 0U);
}

// Prevents: what it runs in the turn of the other one is free of charge, and counts for the other.
TEST_F(OneRunsOpen, WhatItRunsInTheTurnOfAnotherCounts) {
  stop(a_, 10);
  until_b_has_the_turn();
  const double before = used_ms(a_);
  const double other = used_ms(b_);
  run(12);
  EXPECT_GT(used_ms(a_) - before, 4);
  while (slot(b_).turn.until_ns.load() != 0) run(1);
  EXPECT_NEAR(used_ms(b_) - other, 15, 1.5) << "of 20 ms, it had half of ten";
}

// Prevents: the time before its job counts, back to when it last looked.
TEST_F(OneRunsOpen, OnlyTheTimeOfItsJobCounts) {
  for (const int each : {a_, b_}) give_work(each, 0);
  run(50);
  TurnRule& rule = program(a_).rule;
  const std::uint64_t before = rule.look(*board_, a_, now_, true).used;
  slot(b_).turn.used.store(before);
  now_ += 15 * kMs;
  give_work(a_, kNever);
  slot(a_).job_since_ns.store(now_);
  now_ += 4 * kMs;
  EXPECT_EQ(rule.look(*board_, a_, now_, true).used, before + 4 * kMs);
}

// Prevents: a job above, which interrupts a long kernel, counts for the owner of the kernel.
TEST_F(Turns, WhatRunsOnDoesNotCountWhileOthersHoldIt) {
  const int a = add(1);
  add(1);
  program(a).kernel_ns = 1000 * kMs;
  for (int i = 0; i < 200 && (slot(a).turn.takes.load() & kRunsOn) == 0; ++i) run(1);
  ASSERT_NE(slot(a).turn.takes.load() & kRunsOn, 0U);
  run(50);
  const std::uint64_t before = slot(a).turn.used.load();
  run(10);
  EXPECT_GT(slot(a).turn.used.load(), before + 3 * kMs);
  slot(a).gate.fetch_or(shm::bit(60));
  run(2);
  const std::uint64_t held = slot(a).turn.used.load();
  run(50);
  EXPECT_EQ(slot(a).turn.used.load(), held);
}

// Prevents: nobody has a turn, because the next one has died meanwhile.
TEST_F(Turns, WhereTheNextOneHasDiedTheOwnerGoesOn) {
  const int a = add(1);
  const int b = add(1);
  program(a).kernel_ns = 15 * kMs;
  while (!program(a).rule.drains()) run(1);
  die(b);
  run(1);
  EXPECT_EQ(slot(a).gate.load() & shm::bit(a), 0U);
}

TEST_F(Turns, SeveralGetTheirParts) {
  const std::array<int, 4> all{add(4), add(3), add(2), add(1)};
  run(6000);
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(served_ms(all[static_cast<std::size_t>(i)]), 600 * (4 - i), 60);
  EXPECT_LT(static_cast<double>(unused_ns_) / kMs, 60);
}

// Prevents: time that nobody uses because it belongs to somebody who has nothing to run.
TEST_F(Turns, WhoHasNoWorkGivesHisTurnAway) {
  const int a = add(1);
  const int b = add(9);
  for (int i = 0; i < 20; ++i) {
    give_work(b, 5 * kMs);
    run(100);
  }
  EXPECT_NEAR(served_ms(b), 100, 5);
  EXPECT_GT(served_ms(a), 1900 - 20 * 2 - 30);
}

// Prevents: a program that slept has all the turns until it has caught up.
TEST_F(Turns, ASleeperGetsNothingBack) {
  const int a = add(1);
  const int b = add(1);
  give_work(b, 30 * kMs);
  run(3000);
  program(a).served_ns = 0;
  give_work(b, kNever);
  run(1000);
  EXPECT_NEAR(served_ms(a), 500, 25);
  EXPECT_LT(program(b).longest_wait_ns, 25 * kMs) << "nor does it wait for long";
}

TEST_F(Turns, TheTimeThatAJobAboveTakesIsNotThatOfTheTurn) {
  const int a = add(1);
  const int b = add(1);
  // Whoever has the turn when a job begins has more of them in its turn, without this.
  for (int i = 0; i < 200; ++i) {
    run(13);
    hold_all(true);
    run(27);
    hold_all(false);
  }
  EXPECT_NEAR(served_ms(a) / served_ms(b), 1, 0.05);
  EXPECT_GT(served_ms(a) + served_ms(b), 0.95 * 200 * 13);
}

// Prevents: next to a client above that is nearly always busy, a turn lasts for minutes.
TEST_F(Turns, WhoIsHeldForMostOfItsTurnGivesItAway) {
  const std::array<int, 3> all{add(1), add(1), add(1)};
  for (int i = 0; i < 200; ++i) {
    hold_all(true);
    run(49);
    hold_all(false);
    run(1);
  }
  for (const int i : all) {
    EXPECT_GT(program(i).turns, 20) << "in 10 s";
    EXPECT_NEAR(served_ms(i), 67, 20);
  }
}

TEST_F(Turns, WhoIsKilledInHisTurnIsForgotten) {
  const int a = add(1);
  const int b = add(1);
  const int c = add(1);
  for (int i = 0; i < 60 && slot(a).turn.until_ns.load() == 0; ++i) run(1);
  ASSERT_NE(slot(a).turn.until_ns.load(), 0U);
  die(a);
  unused_ns_ = 0;
  program(b).served_ns = 0;
  program(c).served_ns = 0;
  run(1000);
  EXPECT_LT(static_cast<double>(unused_ns_) / kMs, 45) << "one turn and its grace";
  EXPECT_NEAR(served_ms(b), 490, 30);
  EXPECT_NEAR(served_ms(c), 490, 30);
}

TEST_F(Turns, WhoIsStoppedInHisTurnKeepsNobodyWaiting) {
  const int a = add(1);
  const int b = add(1);
  for (int i = 0; i < 60 && slot(a).turn.until_ns.load() == 0; ++i) run(1);
  ASSERT_NE(slot(a).turn.until_ns.load(), 0U);
  stop(a, 1000);
  run(40);
  EXPECT_EQ(slot(b).gate.load(), 0U) << "its turn is void";
  run(160);
  program(b).longest_wait_ns = 0;
  run(700);
  EXPECT_LT(program(b).longest_wait_ns, 5 * kMs) << "a stopped one takes no turns";
  program(a).served_ns = 0;
  program(b).served_ns = 0;
  run(1200);
  EXPECT_NEAR(served_ms(a) / served_ms(b), 1, 0.2) << "it goes on";
}

TEST_F(Turns, NobodyIsHeldWhoseWorkIsToDrain) {
  const int a = add(1);
  const int b = add(1);
  run(100);
  slot(a).memory.draining.store(shm::id_of({b, 1}));
  run(1);
  EXPECT_EQ(slot(a).gate.load() & shm::bit(a), 0U);
}

TEST_F(Turns, NobodyIsHeldUnderPolicyNone) {
  const int a = add(1);
  add(1);
  run(100);
  slot(a).policy.store(shm::Policy{shm::PolicyKind::kNone}.pack());
  run(1);
  EXPECT_EQ(slot(a).gate.load() & shm::bit(a), 0U);
  EXPECT_EQ(slot(a).turn.takes.load(), 0U);
}

/// Programs of any weight with threads that are up to 15 ms late, which pause, are stopped and die.
class RandomTurns : public Turns, public testing::WithParamInterface<int> {};

// Prevents: a turn that nobody takes, and a program that never has one.
TEST_P(RandomTurns, SomebodyRunsAndEverybodyHasTurns) {
  random_.seed(static_cast<std::uint64_t>(GetParam()));
  const auto choose = [&](std::uint64_t most) { return random_() % (most + 1); };
  latest_ns_ = std::array<std::uint64_t, 3>{100'000, kMs, 15 * kMs}[choose(2)];
  const int count = 2 + static_cast<int>(choose(4));
  for (int i = 0; i < count; ++i) add(static_cast<std::uint32_t>(1 + choose(9)));
  int dead = 0;
  for (int round = 0; round < 60; ++round) {
    run(5 + choose(60));
    const int chosen = static_cast<int>(choose(static_cast<std::uint64_t>(count - 1)));
    switch (choose(5)) {
      case 0:
        give_work(chosen, choose(30 * kMs));
        break;
      case 1:
        give_work(chosen, kNever);
        break;
      case 2:
        stop(chosen, choose(400));
        break;
      case 3:
        if (dead + 2 < count && program(chosen).lives && ++dead != 0) die(chosen);
        break;
      default:
        hold_all(!held_);
    }
  }
  hold_all(false);
  for (int i = 0; i < count; ++i) {
    if (program(i).lives) give_work(i, kNever);
  }
  run(500);
  unused_ns_ = 0;
  shared_ns_ = 0;
  std::uint64_t weights = 0;
  for (int i = 0; i < count; ++i) {
    program(i).served_ns = 0;
    if (program(i).lives) weights += slot(i).requested_weight.load();
  }
  constexpr std::uint64_t kPeaceMs = 4000;
  run(kPeaceMs);
  const double late_part = static_cast<double>(latest_ns_) / (20 * kMs);
  EXPECT_LT(static_cast<double>(unused_ns_) / kMs, kPeaceMs * (0.02 + late_part));
  EXPECT_LT(static_cast<double>(shared_ns_) / kMs, kPeaceMs * (0.05 + late_part / 2));
  for (int i = 0; i < count; ++i) {
    if (!program(i).lives) continue;
    const double part =
        static_cast<double>(slot(i).requested_weight.load()) / static_cast<double>(weights);
    EXPECT_GT(served_ms(i), kPeaceMs * part * (0.75 - late_part / 2)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomTurns, testing::Range(0, 30));

}  // namespace
}  // namespace sluice::intercept::test
