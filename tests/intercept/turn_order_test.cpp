// Who is next, where some have had more than others, or come while these wait.
#include "tests/intercept/turns.hpp"

namespace sluice::intercept::test {
namespace {

// Prevents: the old count of one that comes now and then, before its thread has looked, is taken
// for that of now, and others go on with it.
TEST_F(Turns, WhoComesNowAndThenMovesNobody) {
  add(3);
  const int waits = add(1);
  const int seldom = add(1);
  give_work(seldom, 0);
  run(3000);
  program(waits).longest_wait_ns = 0;
  for (int i = 0; i < 40; ++i) {
    program(seldom).looks = false;
    give_work(seldom, kMs);
    run(15);
    program(seldom).looks = true;
    run(50);
    slot(seldom).turn.used.store(0);
    run(10);
  }
  EXPECT_LT(program(waits).longest_wait_ns, 150 * kMs);
}

// Prevents: in a fixed order, whoever follows one after whose turns jobs above last for long,
// because its queued kernels run on, is held for all of its own turns.
TEST_F(Turns, NobodyIsAlwaysNextAfterTheSameOne) {
  const std::array<int, 4> all{add(1), add(1), add(1), add(1)};
  for (int i = 0; i < 100; ++i) {
    for (int ms = 0; ms < 500 && slot(all[0]).turn.until_ns.load() == 0; ++ms) run(1);
    for (int ms = 0; ms < 500 && slot(all[0]).turn.until_ns.load() != 0; ++ms) run(1);
    hold_all(true);
    run(105);
    hold_all(false);
  }
  const double first = served_ms(all[0]);
  for (const int i : all) EXPECT_GT(served_ms(i), 0.5 * first) << i;
}

/// Programs, of which some have had much more than others: what they had queued ran on.
class UnequalTurns : public Turns, public testing::WithParamInterface<int> {};

// Prevents: one that comes waits until all others have had what one of them has had.
TEST_P(UnequalTurns, OneThatComesWaitsForATurnOfEachAtMost) {
  random_.seed(static_cast<std::uint64_t>(GetParam()));
  const int count = 2 + static_cast<int>(random_() % 4);
  for (int i = 0; i < count; ++i) add(static_cast<std::uint32_t>(1 + random_() % 3));
  const int comes = add(1);
  give_work(comes, random_() % 2 == 0 ? 0 : 10 * kMs);
  for (int i = 0; i < 5; ++i) {
    const int ahead = static_cast<int>(random_() % static_cast<std::uint64_t>(count));
    program(ahead).kernel_ns = random_() % (1000 * kMs);
    run(100 + random_() % 300);
    program(ahead).kernel_ns = 0;
  }
  give_work(comes, kNever);
  program(comes).longest_wait_ns = 0;
  program(comes).waits_since_ns = now_;
  program(comes).served_ns = 0;
  run(2000);
  std::uint64_t weights = 1;
  for (int i = 0; i < count; ++i) weights += slot(i).requested_weight.load();
  const auto others = static_cast<std::uint64_t>(count);
  EXPECT_LT(program(comes).longest_wait_ns, (weights + others + 1) * 20 * kMs);
  EXPECT_GT(served_ms(comes), 0.7 * 2000 / static_cast<double>(weights));
}

// Prevents: on a board that is made anew, those who come first begin at nothing, and the old ones
// wait until these have had what they had on the board before.
TEST_P(UnequalTurns, OnANewBoardNobodyWaitsForLong) {
  random_.seed(static_cast<std::uint64_t>(GetParam()));
  const int old = 2 + static_cast<int>(random_() % 3);
  for (int i = 0; i < old; ++i) add(static_cast<std::uint32_t>(1 + random_() % 3));
  run(4000 + random_() % 8000);
  for (int i = 0; i < old; ++i) {
    slot(i).turn.takes.store(0);
    slot(i).turn.used.store(0);
    slot(i).turn.until_ns.store(0);
    program(i).stopped_until_ns = now_ + 30 * kMs;
  }
  const int count = old + 2;
  for (int i = old; i < count; ++i) add(1);
  run(100);
  std::uint64_t weights = 0;
  for (int i = 0; i < count; ++i) {
    weights += slot(i).requested_weight.load();
    program(i).longest_wait_ns = 0;
  }
  run(4000);
  for (int i = 0; i < count; ++i) {
    EXPECT_LT(program(i).longest_wait_ns, (5 * weights + 3) * 20 * kMs) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, UnequalTurns, testing::Range(0, 30));

}  // namespace
}  // namespace sluice::intercept::test
