#include "base/futex.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "base/clock.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/shared.hpp"

namespace sluice::base {
namespace {

using test::ForkedChild;
using test::Shared;
using Word = std::atomic<std::uint32_t>;

constexpr std::uint64_t kMs = 1'000'000;

TEST(Futex, ReturnsAtOnceForAnotherValue) {
  const Word word{1};
  const std::uint64_t start = monotonic_ns();
  futex_wait(word, 0, 60'000 * kMs);
  EXPECT_LT(monotonic_ns() - start, 30'000 * kMs);
}

// Every wait must be bounded: a waker may never come.
TEST(Futex, EndsByItself) {
  const Word word{0};
  const std::uint64_t start = monotonic_ns();
  futex_wait(word, 0, 20 * kMs);
  EXPECT_GE(monotonic_ns() - start, 19 * kMs);
}

TEST(Futex, KeepsErrno) {
  const Word word{0};
  errno = 4711;
  futex_wait(word, 0, 1);
  futex_wake_all(word);
  EXPECT_EQ(errno, 4711);
}

// An earlier version woke only one of several waiters.
TEST(Futex, WakesEveryProcess) {
  const Shared<std::array<Word, 2>> words;
  Word& word = (*words)[0];
  Word& asleep = (*words)[1];
  const auto sleeper = [&] {
    asleep.fetch_add(1);
    const std::uint64_t start = monotonic_ns();
    while (word.load() == 0) {
      futex_wait(word, 0, 60'000 * kMs);
      if (monotonic_ns() - start > 30'000 * kMs) return 1;
    }
    return 0;
  };
  ForkedChild first(sleeper);
  ForkedChild second(sleeper);
  ASSERT_TRUE(test::eventually([&] { return asleep.load() == 2; }));
  ASSERT_TRUE(test::eventually([&] { return first.sleeps() && second.sleeps(); }));
  word.store(1);
  futex_wake_all(word);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

}  // namespace
}  // namespace sluice::base
