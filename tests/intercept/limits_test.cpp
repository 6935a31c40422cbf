// Programs that have given up rights, as a sandbox does: nothing of ours may spin, or end them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

using Limits = Session;

// Prevents: the watcher takes a whole processor in a program that may open no more files, because
// poll(2) then fails at once for any number of descriptors.
TEST_F(Limits, AProgramWithoutDescriptorsHasAWatcherThatSleeps) {
  attach("gate");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  std::uint64_t beat = slot().watcher_beat_ns.load();
  const auto end = std::chrono::steady_clock::now() + 400ms;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int beats = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::uint64_t now = slot().watcher_beat_ns.load();
    if (std::exchange(beat, now) != now) ++beats;
    std::this_thread::yield();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GT(beats, 0);
  EXPECT_LE(beats, 20) << "one each 20 ms";
}

}  // namespace
}  // namespace sluice::intercept::test
