#include "shm/robust_mutex.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

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

using Found = RobustMutex::Found;
using test::ForkedChild;
using test::Shared;
using test::Signal;

/// Spins until the mutex is free. Returns the time that took, or nothing after 10 s.
std::optional<std::uint64_t> time_to_release(RobustMutex& mutex, Found& found) {
  const std::uint64_t start = base::monotonic_ns();
  for (;;) {
    found = mutex.probe();
    const std::uint64_t now = base::monotonic_ns();
    if (found != Found::kHeld) return now - start;
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
  EXPECT_EQ(mutex->probe(), Found::kFree);
  ASSERT_TRUE(mutex->take());
  ForkedChild other([&] { return mutex->take() || mutex->probe() != Found::kHeld ? 1 : 0; });
  EXPECT_EQ(other.wait(), 0);
  mutex->release();
  EXPECT_EQ(mutex->probe(), Found::kFree);
}

// The controller learns of a death through this mutex, and through nothing slower.
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
  EXPECT_EQ(mutex->probe(), Found::kHeld);
  holder.signal(SIGKILL);
  Found found{};
  const auto took = time_to_release(*mutex, found);
  ASSERT_TRUE(took) << "held by a dead process";
  std::cout << "released " << *took / 1000 << " us after SIGKILL\n";
  EXPECT_EQ(found, Found::kOwnerDied);
  EXPECT_EQ(mutex->probe(), Found::kFree) << "not recovered";
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
  EXPECT_EQ(mutex->probe(), Found::kHeld);
  go.raise();
  Found found{};
  const auto took = time_to_release(*mutex, found);
  ASSERT_TRUE(took) << "held by a program that no longer exists";
  std::cout << "released " << *took / 1000 << " us after exec\n";
  EXPECT_EQ(found, Found::kOwnerDied);
}

// A client may die before the controller has seen the death of the previous one.
TEST(RobustMutex, IsTakenFromADeadOwner) {
  const Shared<RobustMutex> mutex;
  mutex->initialise();
  ForkedChild holder([&] { return mutex->take() ? 0 : 1; });
  EXPECT_EQ(holder.wait(), 0);
  EXPECT_TRUE(mutex->take());
  ForkedChild other([&] { return mutex->probe() == Found::kHeld ? 0 : 1; });
  EXPECT_EQ(other.wait(), 0);
  mutex->release();
  EXPECT_EQ(mutex->probe(), Found::kFree) << "no later client could take it";
}

}  // namespace
}  // namespace sluice::shm
