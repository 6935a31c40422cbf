// Programs that have given up rights, as a sandbox does: nothing of ours may spin, or end them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "tests/intercept/session.hpp"

namespace {
std::atomic<int> g_threads_left{std::numeric_limits<int>::max()};
}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  if (g_threads_left.fetch_sub(1) <= 0) return EAGAIN;
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}

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

class WithRoomForThreads : public Limits, public testing::WithParamInterface<int> {};

// Prevents: a job that nobody ends, because the thread that finds its end could not be started.
TEST_P(WithRoomForThreads, AProgramIsGatedWithBothOfOursOrNotAtAll) {
  choose("gate", 1);
  start_controller();
  g_threads_left.store(GetParam());
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(board().used.load(), GetParam() < 2 ? 0U : 1U);
}
INSTANTIATE_TEST_SUITE_P(Limits, WithRoomForThreads, testing::Values(0, 1, 2));

}  // namespace
}  // namespace sluice::intercept::test
