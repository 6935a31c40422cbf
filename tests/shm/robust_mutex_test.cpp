#include "shm/robust_mutex.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/shared.hpp"
#include "tests/support/signal.hpp"

namespace sluice::shm {
namespace {

using test::ForkedChild;
using test::Shared;
using test::Signal;

/// Spins until the mutex is free. Returns the time that took, or nothing after 10 s.
std::optional<std::uint64_t> time_to_release(const RobustMutex& mutex) {
  const std::uint64_t start = base::monotonic_ns();
  for (;;) {
    const bool held = mutex.held();
    const std::uint64_t now = base::monotonic_ns();
    if (!held) return now - start;
    if (now - start > 10'000'000'000) return std::nullopt;
  }
}

/// For a child: holds the mutex indefinitely on a thread of its own, as a client does.
void hold(RobustMutex& mutex, const Signal& taken) {
  std::thread([&] {
    if (mutex.take()) taken.raise();
    for (;;) pause();
  }).detach();
}

TEST(RobustMutex, IsTakenOnce) {
  const Shared<RobustMutex> mutex;
  mutex->initialise();
  EXPECT_FALSE(mutex->held());
  ASSERT_TRUE(mutex->take());
  ForkedChild other([&] { return mutex->take() || !mutex->held() ? 1 : 0; });
  EXPECT_EQ(other.wait(), 0);
  mutex->release();
  EXPECT_FALSE(mutex->held());
}

// Others learn of a death through this mutex, and through nothing slower.
TEST(RobustMutex, SigkillReleases) {
  const Shared<RobustMutex> mutex;
  mutex->initialise();
  const Signal taken;
  ForkedChild holder([&] {
    // The kernel has to tear down this touched memory, and the mutex must not wait for that.
    std::vector<char> memory(64 << 20, 1);
    hold(*mutex, taken);
    for (;;) pause();
    return static_cast<int>(memory.size());
  });
  ASSERT_TRUE(taken.wait());
  EXPECT_TRUE(mutex->held());
  holder.signal(SIGKILL);
  const auto took = time_to_release(*mutex);
  ASSERT_TRUE(took) << "held by a dead process";
  std::cout << "released " << *took / 1000 << " us after SIGKILL\n";
  EXPECT_TRUE(mutex->take()) << "the slot's next client could not take it";
  mutex->release();
}

// exec ends the client, although its pid lives on.
TEST(RobustMutex, ExecReleases) {
  const Shared<RobustMutex> mutex;
  mutex->initialise();
  const Signal taken;
  const Signal go;
  const ForkedChild holder([&] {
    hold(*mutex, taken);
    if (!go.wait()) return 1;
    return execl("/bin/sleep", "sleep", "60", nullptr);
  });
  ASSERT_TRUE(taken.wait());
  EXPECT_TRUE(mutex->held());
  go.raise();
  const auto took = time_to_release(*mutex);
  ASSERT_TRUE(took) << "held by a program that no longer exists";
  std::cout << "released " << *took / 1000 << " us after exec\n";
}

// Prevents: while one process looks, another takes the dead client for alive, or the slot's next
// client cannot take the mutex. Seen to fail with a probe that takes the mutex.
TEST(RobustMutex, LookingNeverGetsInTheWay) {
  const Shared<RobustMutex> mutex;
  mutex->initialise();
  std::atomic<bool> stop{false};
  std::vector<std::thread> lookers;
  for (int i = 0; i < 2; ++i) {
    lookers.emplace_back([&] {
      while (!stop.load()) static_cast<void>(mutex->held());
    });
  }
  int refused = 0;
  int seen = 0;
  for (int i = 0; i < 100'000; ++i) {
    seen += mutex->held() ? 1 : 0;
    if (mutex->take()) {
      mutex->release();
    } else {
      ++refused;
    }
  }
  stop.store(true);
  for (std::thread& looker : lookers) looker.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(seen, 0) << "nobody holds it";
}

// A client may die before the controller has seen the death of the previous one.
TEST(RobustMutex, IsTakenFromADeadOwner) {
  const Shared<RobustMutex> mutex;
  mutex->initialise();
  ForkedChild holder([&] { return mutex->take() ? 0 : 1; });
  EXPECT_EQ(holder.wait(), 0);
  EXPECT_TRUE(mutex->take());
  ForkedChild other([&] { return mutex->held() ? 0 : 1; });
  EXPECT_EQ(other.wait(), 0);
  mutex->release();
  EXPECT_FALSE(mutex->held()) << "no later client could take it";
}

}  // namespace
}  // namespace sluice::shm
