// A worker whose step the driver blocks is relieved. Threads and the clock are the test's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "intercept/driver/threads.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::intercept {
namespace {

using sluice::test::eventually;

/// Step n waits until n is less than `open`.
struct Blocked {
  std::atomic<int> steps{0};
  std::atomic<int> open{0};
  std::atomic<int> returned{0};
  Worker worker{"blocked", [this] {
                  const int step = steps.fetch_add(1);
                  while (step >= open.load()) std::this_thread::yield();
                  returned.fetch_add(1);
                  return Worker::Sleep{1'000'000'000, true};
                }};

  bool has_begun(int count) {
    return eventually([&] { return steps.load() == count; });
  }
};

/// Its threads may outlive a test.
Blocked& blocked() { return *new Blocked; }  // NOLINT(cppcoreguidelines-owning-memory)

std::uint64_t later() { return base::monotonic_ns() + Worker::kBlockedNs + 1'000'000'000; }

// Prevents: what a thread would do is never done again, because the driver does not answer it.
TEST(Worker, IsRelievedWhenItsStepIsBlocked) {
  Blocked& all = blocked();
  ASSERT_TRUE(all.worker.wake());
  ASSERT_TRUE(all.has_begun(1));
  EXPECT_FALSE(all.worker.is_blocked(base::monotonic_ns() - 1)) << "not for long";
  EXPECT_TRUE(all.worker.is_blocked(later()));
  all.worker.relieve(later());
  ASSERT_TRUE(all.has_begun(2));
  all.worker.relieve(later());
  ASSERT_TRUE(all.has_begun(3));
  all.open = 3;
  ASSERT_TRUE(eventually([&] { return all.returned.load() == 3; }));
  // Of the three threads only the last one goes on.
  for (int wake = 4; wake <= 6; ++wake) {
    all.open = wake;
    ASSERT_TRUE(eventually([&] {
      all.worker.wake();
      return all.returned.load() >= wake;
    }));
  }
  all.open = 1 << 20;  // it may have been woken once more
  EXPECT_TRUE(eventually([&] { return !all.worker.is_blocked(later()); })) << "it sleeps";
}

TEST(Worker, HasABoundOfThreads) {
  Blocked& all = blocked();
  all.worker.wake();
  for (int i = 1; i <= Worker::kMostBlocked + 1; ++i) {
    ASSERT_TRUE(all.has_begun(i));
    EXPECT_EQ(all.worker.is_blocked(later()), i <= Worker::kMostBlocked);
    all.worker.relieve(later());
  }
  EXPECT_EQ(all.steps.load(), Worker::kMostBlocked + 1);
  all.open = 1 << 20;
  // Those that were relieved end, so that there is room for others.
  ASSERT_TRUE(eventually([&] { return all.returned.load() == Worker::kMostBlocked + 1; }));
}

}  // namespace
}  // namespace sluice::intercept
