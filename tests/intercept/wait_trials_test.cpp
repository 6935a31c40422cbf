// Whether a holder waits for its target, found by trial, in virtual time: programs of both kinds.
#include "intercept/slot/wait_trials.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kTick = 20 * kMs;
constexpr std::uint64_t kMaxHold = 1000 * kMs;

using Random = std::mt19937_64;

/// A program that waits again and again, and its target.
struct Pair {
  explicit Pair(std::uint64_t seed) : random(seed) {
    for (std::uint64_t i = 0; i < seed; ++i) draw.next();
  }
  std::uint64_t below(std::uint64_t bound) { return random() % bound; }
  /// A wait that ends after `own_ns`, whatever the target does, or once the target has run for
  /// `work_ns`. Returns how long it took.
  std::uint64_t wait(std::uint64_t own_ns, std::uint64_t work_ns = ~std::uint64_t{0}) {
    const std::uint64_t since = now;
    std::uint64_t ran = 0;
    while (now - since < own_ns && ran < work_ns) {
      now += kMs;
      if (trials.is_open()) ran += kMs;
      if (now % kTick == 0) tick(since);
    }
    const std::uint64_t took = now - since;
    pass(1 + below(30));
    return took;
  }
  void pass(std::uint64_t ms) {
    for (std::uint64_t i = 0; i < ms; ++i) {
      now += kMs;
      if (now % kTick == 0) tick(0);
    }
  }
  void tick(std::uint64_t since) {
    if (trials.is_open()) open += kTick;
    trials.look(since, now);
    trials.begin(since, now, kMaxHold, draw);
    ever_proven = ever_proven || trials.proven();  // a proof may end within a wait
  }

  Random random;
  Draw draw;
  WaitTrials trials;
  std::uint64_t now = 1'000'000 * kMs;
  std::uint64_t open = 0;
  bool ever_proven = false;
};

// Prevents: independent waits prove that a critical program waits for best effort, which then runs
// in all its waits. Seen to fail when two trials in a row that ended a wait were a proof, without
// controls, and without the random order; where each pair after a trial that has ended a wait came
// soon.
TEST(WaitTrials, IndependentWaitsProveNothing) {
  constexpr std::uint64_t kHours = 3'600'000 * kMs;
  int proven = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    const std::uint64_t kind = pair.below(8);
    const std::uint64_t mean = kMaxHold / 4 + pair.below(2 * kMaxHold);
    std::exponential_distribution<double> random_wait(1.0 / static_cast<double>(mean));
    const std::uint64_t begin = pair.now;
    int waits = 0;
    while (pair.now < begin + kHours / 2) {
      std::uint64_t own = 60 * kMs;
      if (kind == 0) own = kMaxHold + pair.below(160) * kMs;
      if (kind == 1) own = static_cast<std::uint64_t>(random_wait(pair.random));
      if (kind == 2 && pair.below(50) == 0) own = kMaxHold + 80 * kMs;
      if (kind == 3) own = pair.below(2) != 0 ? 150 * kMs : kMaxHold + 80 * kMs;
      if (kind == 4) own = mean;
      if (kind == 5) own = kMaxHold + (++waits % 2 != 0 ? 60 : 400) * kMs;
      // Whoever outlasts the first part of a pair outlasts the second one, and ends in a pause.
      if (kind == 6) own = kMaxHold + (pair.below(2) != 0 ? 60 : 2000) * kMs;
      // Many would end in a part that comes soon.
      if (kind == 7) own = waits++ % 200 < 2 ? kMaxHold + 80 * kMs : 195 * kMs;
      pair.wait(own);
    }
    if (pair.ever_proven) ++proven;
    const double open = static_cast<double>(pair.open) / static_cast<double>(pair.now - begin);
    EXPECT_LE(open, kind == 7 ? 0.02 : 0.12) << kind << ": a part is a tenth of max_hold here, and "
                                             << "what ended both parts of a pair was chance";
  }
  EXPECT_LE(proven, 2) << "of 400, where one in a thousand may be";
}

// Prevents: two programs that work together hang for longer than two waits of max_hold.
TEST(WaitTrials, AWaitForTheTargetIsProven) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    const std::uint64_t work = 1 + pair.below(60);
    const std::uint64_t begin = pair.now;
    int items = 0;
    for (; !pair.trials.proven() && items < 100; ++items)
      EXPECT_LE(pair.wait(~std::uint64_t{0}, work * kMs), kMaxHold + 500 * kMs);
    EXPECT_LE(pair.now - begin, 2 * kMaxHold + 15'000 * kMs) << items;
    std::uint64_t sum = 0;
    for (int i = 0; i < 1000; ++i) sum += pair.wait(~std::uint64_t{0}, work * kMs);
    EXPECT_LE(sum / 1000, (work + 25) * kMs) << "controls are few";
    EXPECT_TRUE(pair.trials.proven());
  }
}

// The same where most waits have another reason.
TEST(WaitTrials, AFewWaitsForTheTargetAreEnough) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Pair pair(seed);
    const std::uint64_t begin = pair.now;
    while (!pair.trials.proven() && pair.now < begin + 600'000 * kMs)
      pair.below(3) == 0 ? pair.wait(~std::uint64_t{0}, 10 * kMs) : pair.wait(50 * kMs);
    EXPECT_LE(pair.now - begin, 60'000 * kMs) << seed;
  }
}

// Prevents: what was proven once holds for good.
TEST(WaitTrials, AProofHasAnEnd) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Pair pair(seed);
    while (!pair.trials.proven()) pair.wait(~std::uint64_t{0}, 10 * kMs);
    for (std::uint64_t i = pair.below(300); i != 0; --i) pair.wait(~std::uint64_t{0}, 10 * kMs);
    int waits = 0;
    const std::uint64_t own = 30 + pair.below(90);
    for (; pair.trials.proven() && waits < 10'000; ++waits) pair.wait(own * kMs);
    EXPECT_LE(waits, 3000) << seed;
    while (!pair.trials.proven()) pair.wait(~std::uint64_t{0}, 10 * kMs);
    pair.wait(30'000 * kMs);
    EXPECT_FALSE(pair.trials.proven()) << "the gate was open for a second of it";
  }
}

}  // namespace
}  // namespace sluice::intercept
