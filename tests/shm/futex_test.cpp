#include "base/futex.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "shm/board.hpp"
#include "tests/shm/support.hpp"

namespace sluice::base {
namespace {

using shm::test::Child;
using shm::test::Shared;

constexpr std::uint64_t kMs = 1'000'000;

TEST(Futex, DoesNotSleepOnAnotherValue) {
  const shm::HalfWord word{1};
  const std::uint64_t start = monotonic_ns();
  futex_wait(word, 0, 60'000 * kMs);
  EXPECT_LT(monotonic_ns() - start, 30'000 * kMs);
}

// Every wait is bounded: nobody may be there to wake us.
TEST(Futex, EndsByItself) {
  const shm::HalfWord word{0};
  const std::uint64_t start = monotonic_ns();
  futex_wait(word, 0, 20 * kMs);
  EXPECT_GE(monotonic_ns() - start, 19 * kMs);
}

TEST(Futex, LeavesErrnoAlone) {
  const shm::HalfWord word{0};
  errno = 4711;
  futex_wait(word, 0, 1);
  futex_wake_all(word);
  EXPECT_EQ(errno, 4711);
}

// The original woke one waiter of several.
TEST(Futex, WakesEveryProcess) {
  const Shared<std::array<shm::HalfWord, 2>> words;
  shm::HalfWord& word = (*words)[0];
  shm::HalfWord& asleep = (*words)[1];
  const auto sleeper = [&] {
    asleep.fetch_add(1);
    const std::uint64_t start = monotonic_ns();
    while (word.load() == 0) {
      futex_wait(word, 0, 60'000 * kMs);
      if (monotonic_ns() - start > 30'000 * kMs) return 1;
    }
    return 0;
  };
  Child first(sleeper);
  Child second(sleeper);
  ASSERT_TRUE(shm::test::eventually([&] { return asleep.load() == 2; }));
  word.store(1);
  futex_wake_all(word);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

}  // namespace
}  // namespace sluice::base
