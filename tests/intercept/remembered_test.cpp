// What threads remember of streams, and what makes it void.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <latch>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"
#include "intercept/hooks/launch.hpp"
#include "intercept/pacing/launch_count.hpp"
#include "tests/intercept/own_client.hpp"

namespace {

std::atomic<int> g_asked{0};  ///< How often anybody asked whether a thread is gone.

}  // namespace

extern "C" int tgkill(pid_t process, pid_t thread, int signal) {
  g_asked.fetch_add(1);
  return static_cast<int>(syscall(SYS_tgkill, process, thread, signal));
}

namespace sluice::intercept::test {
namespace {

CUstream handle(std::uintptr_t number) { return reinterpret_cast<CUstream>(number); }

// Prevents: two streams in turn that drive each other out, each launch a slow one. A third stream
// of the past must not make room for itself.
TEST(Remembered, TwoStreamsInTurnAreAlwaysBothFound) {
  std::vector<CUstream> streams;
  for (std::uintptr_t i = 1; i <= 32; ++i) streams.push_back(handle(i * 0x100));
  for (CUstream past : streams) {
    for (CUstream one : streams) {
      for (CUstream other : streams) {
        if (past == one || one == other || past == other) continue;
        RememberedStreams remembered;
        remembered.place_for(past).version = 1;
        remembered.place_for(one).version = 2;
        remembered.place_for(other).version = 2;
        ASSERT_NE(remembered.find(one), nullptr) << one << " " << other << " " << past;
        ASSERT_NE(remembered.find(other), nullptr) << one << " " << other << " " << past;
        ASSERT_EQ(remembered.find(one)->version, 2U);
      }
    }
  }
}

// Prevents: what is left of another stream is taken for this one's.
TEST(Remembered, ANewPlaceIsEmpty) {
  RememberedStreams streams;
  RememberedStream& place = streams.place_for(handle(0x1000));
  place.version = 7;
  place.counts = reinterpret_cast<shm::Word*>(8);
  EXPECT_EQ(streams.place_for(handle(0x1000)).counts, nullptr);
  EXPECT_EQ(streams.find(handle(0x1000))->version, 0U);
}

// Prevents: the default stream of one context taken for that of another one.
TEST(Remembered, DefaultStreamsGoWithTheContext) {
  for (CUstream stream : {handle(0), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    RememberedStreams streams;
    streams.place_for(stream).version = 1;
    streams.place_for(handle(0x1000)).version = 1;
    streams.forget_default_streams();
    EXPECT_EQ(streams.find(stream), nullptr) << stream;
    EXPECT_NE(streams.find(handle(0x1000)), nullptr);
  }
}

// Prevents: launches of one thread entered for another thread's stream.
TEST(Remembered, APerThreadStreamIsTheThreadsOwn) {
  const auto context = reinterpret_cast<CUcontext>(1);
  const auto key = [=](CUstream stream) { return Streams::key_of(stream, context); };
  Stream::Key others[2];
  std::thread([&] {
    others[0] = key(CU_STREAM_PER_THREAD);
    others[1] = key(nullptr);
  }).join();
  EXPECT_NE(key(CU_STREAM_PER_THREAD), others[0]);
  EXPECT_EQ(key(nullptr), others[1]);
  EXPECT_EQ(key(nullptr), key(CU_STREAM_LEGACY));
}

// Prevents: a thread that launches past its gate, or is not paced, by what it remembers.
TEST(Remembered, EachChangeOfWhatALaunchHasToDoVoidsIt) {
  OwnClient client{0, "device:200us"};
  std::uint64_t version = g_process.version.load();
  const auto changes = [&version] {
    return std::exchange(version, g_process.version.load()) != version;
  };
  client->set_obeys(true);
  EXPECT_TRUE(changes());
  client->set_learning(false);
  EXPECT_TRUE(changes());
  client->slot().requested_policy.store(shm::parse_policy("gate")->pack());
  client->take_policy();
  EXPECT_TRUE(changes());
}

// Prevents: a server with a thread for each request has no stripes left, and each launch pays for a
// locked addition.
TEST(Stripes, ThoseOfEndedThreadsAreGivenOutAgain) {
  for (std::size_t i = 0; i < 4 * shm::kLaunchStripes; ++i) {
    std::thread([i] { EXPECT_GE(launch_stripe(), 0) << i; }).join();
  }
}

// Prevents: a program of one thread makes a system call at the end of each job, or one of two
// threads makes none, so that a launch of the other one is missed.
TEST(Stripes, AThreadKnowsWhetherOthersHaveOne) {
  std::thread([] {
    for (auto& owner : g_process.stripe_owners) owner.store(0);
    EXPECT_FALSE(others_have_stripes());
    ASSERT_GE(launch_stripe(), 0);
    EXPECT_FALSE(others_have_stripes());
    std::thread([] { EXPECT_TRUE(others_have_stripes()); }).join();
  }).join();
}

// Prevents: two threads that add to one word without a lock lose launches.
TEST(Stripes, LivingThreadsShareNone) {
  constexpr std::size_t kThreads = shm::kLaunchStripes + 4;
  std::array<int, kThreads> stripes{};
  std::latch all(kThreads);
  std::vector<std::thread> threads;
  for (int& stripe : stripes) {
    threads.emplace_back([&] {
      stripe = launch_stripe();
      all.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int> taken;
  for (const int stripe : stripes) {
    EXPECT_TRUE(stripe < 0 || taken.insert(stripe).second) << stripe;
  }
  EXPECT_GE(taken.size(), shm::kLaunchStripes - 1) << "this thread may have one";
}

// Prevents: a mark that stays, so that jobs are never polled again.
TEST(Marks, EachThreadTakesBackItsOwn) {
  ThreadMarks marks;
  marks.enter();
  std::latch inside(2);
  std::latch left(2);
  std::latch ending(2);
  std::thread other([&] {
    marks.enter();
    inside.arrive_and_wait();
    marks.leave();
    left.arrive_and_wait();
    ending.arrive_and_wait();
  });
  inside.arrive_and_wait();
  left.arrive_and_wait();
  EXPECT_TRUE(marks.any()) << "the other one's leave took ours";
  marks.leave();
  EXPECT_FALSE(marks.any()) << "the other one's is still there";
  ending.arrive_and_wait();
  other.join();
}

// A thread may be cancelled inside a driver call, and then takes its mark back no more.
TEST(Marks, OfAThreadThatIsGoneDoNotCount) {
  ThreadMarks marks;
  for (int i = 0; i < 100; ++i) std::thread([&marks] { marks.enter(); }).join();
  marks.enter();
  EXPECT_TRUE(marks.any()) << "no place is left";
  marks.leave();
  std::thread([&marks] { marks.enter(); }).join();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (marks.any() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_FALSE(marks.any());
}

// Prevents: with many threads in a wait, a wait of one more asks the system about each of them.
TEST(Marks, OfOthersCostTwoSystemCallsAtMost) {
  constexpr std::ptrdiff_t kOthers = 16;
  constexpr int kTimes = 100;
  ThreadMarks marks;
  std::latch inside(kOthers + 1);
  std::latch ending(kOthers + 1);
  std::vector<std::thread> others;
  for (std::ptrdiff_t i = 0; i < kOthers; ++i) {
    others.emplace_back([&] {
      marks.enter();
      inside.arrive_and_wait();
      ending.arrive_and_wait();
      marks.leave();
    });
  }
  inside.arrive_and_wait();
  g_asked.store(0);
  for (int i = 0; i < kTimes; ++i) {
    marks.enter();
    marks.leave();
  }
  EXPECT_LE(g_asked.load(), 2 * kTimes);
  ending.arrive_and_wait();
  for (std::thread& other : others) other.join();
  EXPECT_FALSE(marks.any());
}

}  // namespace
}  // namespace sluice::intercept::test
