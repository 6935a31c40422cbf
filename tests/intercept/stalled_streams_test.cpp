// A stream that makes no progress keeps nothing else open, in virtual time: the test is the driver,
// the GPU, the clock and the polling thread.
#include <gtest/gtest.h>
#include <time.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"
#include "tests/intercept/own_client.hpp"
#include "tests/intercept/stopped_clock.hpp"

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kMaxHoldNs = 1000 * kMs;
constexpr std::uint64_t kForGood = ~std::uint64_t{0};

/// Each stream runs its work in order, at the same time as the others.
struct Gpu {
  struct Work {
    std::uint64_t ns = 0;  ///< kForGood: it waits for the host, or never ends.
    CUevent event = nullptr;
  };
  std::map<CUstream, std::deque<Work>> streams;
  std::map<CUevent, bool> done;
  int queries = 0;

  void give(CUstream stream, std::uint64_t ns) { streams[stream].push_back({ns}); }
  void record(CUstream stream, CUevent event) {
    done[event] = false;
    streams[stream].push_back({0, event});
    run(0);
  }
  void run(std::uint64_t ns) {
    for (auto& [stream, queue] : streams) {
      std::uint64_t left = ns;
      while (!queue.empty()) {
        Work& work = queue.front();
        if (work.ns == kForGood) break;
        const std::uint64_t now = std::min(left, work.ns);
        left -= now;
        work.ns -= now;
        if (work.ns != 0) break;
        if (work.event != nullptr) done[work.event] = true;
        queue.pop_front();
      }
    }
  }
  /// What the first work of the stream waits for has come.
  void release(CUstream stream) { streams[stream].front().ns = 0; }
  bool idle(CUstream stream) { return streams[stream].empty(); }
};
Gpu g_gpu;
std::function<void()> g_at_answer;  ///< Once, before the driver answers a query.

class StalledStreams : public testing::Test {
 protected:
  static constexpr std::size_t kStreams = 6;
  StalledStreams() {
    g_gpu = {};
    g_at_answer = nullptr;
    Driver& calls = g_process.driver;
    calls.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    calls.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    calls.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    calls.cuStreamQuery = [](CUstream stream) {
      ++g_gpu.queries;
      const CUresult answer = g_gpu.idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
      if (const auto act = std::exchange(g_at_answer, nullptr)) act();
      return answer;
    };
    calls.cuEventRecord = [](CUevent event, CUstream stream) {
      g_gpu.record(stream, event);
      return CUDA_SUCCESS;
    };
    calls.cuEventQuery = [](CUevent event) {
      return g_gpu.done[event] ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    calls.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
      *ms = 1;
      return CUDA_SUCCESS;
    };
    client_.board().max_hold_ns.store(kMaxHoldNs);
    for (std::uintptr_t i = 0; i < kStreams; ++i) {
      streams_[i].key.handle = reinterpret_cast<CUstream>(16 * (i + 1));
      streams_[i].pools = &pools_[i];
      for (std::uintptr_t event = 1; event <= 60; ++event) {
        for (EventPool* const pool : {&pools_[i].timed, &pools_[i].plain}) {
          const std::uintptr_t handle =
              1000 * (i + 1) + event + (pool == &pools_[i].timed ? 500 : 0);
          pool->give_back(reinterpret_cast<CUevent>(handle));
        }
      }
    }
  }
  ~StalledStreams() override {
    for (Stream& stream : streams_) jobs_.forget(stream);
  }

  CUstream handle(std::size_t stream) { return streams_[stream].key.handle; }
  /// `measured`: the launch is drawn for a sample.
  void launch(std::size_t stream, std::uint64_t ns, bool measured = false) {
    client_->slot().entries[0][shm::Count::kGated].fetch_add(1);
    jobs_.touch(streams_[stream], 1);
    LaunchDuration& kind = kinds_[stream];
    Sampler& sampler = streams_[stream].sampler;
    const bool begun = measured && sampler.begin_wanted(kind, handle(stream), pools_[stream]);
    g_gpu.give(handle(stream), ns);
    if (begun) sampler.end(kind, handle(stream), true);
  }
  /// Of virtual time. The polling thread looks each millisecond, or at `hint`; the watcher as well.
  void pass(std::uint64_t ms, bool hint = false) {
    for (std::uint64_t i = 0; i < ms; ++i) {
      g_now_ns += kMs;
      g_gpu.run(kMs);
      static_cast<void>(jobs_.synchronising_since(g_now_ns));
      for (std::size_t each = 0; each < kStreams; ++each)
        streams_[each].sampler.collect({}, pools_[each], [](LaunchDuration&) {});
      jobs_.poll(hint);
    }
  }
  bool active() { return client_.active(); }

  OwnClient client_{5};
  Jobs jobs_{*client_, idle_worker(), idle_worker(), false};
  std::array<Stream, kStreams> streams_;
  std::array<LaunchDuration, kStreams> kinds_;
  std::array<ContextEvents, kStreams> pools_{
      ContextEvents{idle_worker()}, ContextEvents{idle_worker()}, ContextEvents{idle_worker()},
      ContextEvents{idle_worker()}, ContextEvents{idle_worker()}, ContextEvents{idle_worker()}};
};

// Prevents: one stream that waits for the program itself holds best effort for as long as it waits,
// next to a program that uses 2 % of the GPU.
TEST_F(StalledStreams, KeepsNothingOpenForLongerThanMaxHold) {
  launch(0, kForGood);
  pass(990);
  EXPECT_TRUE(active()) << "it may be a long kernel";
  pass(20);
  EXPECT_FALSE(active());
  launch(1, kMs);
  EXPECT_TRUE(active()) << "another stream has work";
  pass(4);
  EXPECT_FALSE(active());
}

// Prevents: status does not say why the work of a critical program holds nobody.
TEST_F(StalledStreams, AreCountedForStatus) {
  const auto shown = [this] { return client_->slot().stalled_streams.load(); };
  launch(0, kForGood);
  launch(2, kForGood);
  pass(990);
  EXPECT_EQ(shown(), 0U);
  pass(30);
  EXPECT_EQ(shown(), 2U);
  g_gpu.release(handle(0));
  pass(30);
  EXPECT_EQ(shown(), 1U);
  g_gpu.release(handle(2));
  pass(30);
  EXPECT_EQ(shown(), 0U);
}

// Prevents: a program that uses 2 % of the GPU holds best effort for all of max_hold each time one
// of its streams waits for its host.
TEST_F(StalledStreams, TwoSecondsAreEnoughIfOtherWorkEndsMeanwhile) {
  client_.board().max_hold_ns.store(10 * kMaxHoldNs);
  launch(0, kForGood, true);
  const auto request = [this] {
    launch(1, kMs);
    pass(50);
  };
  for (int i = 0; i < 39; ++i) request();
  EXPECT_TRUE(active());
  request();
  request();
  EXPECT_FALSE(active());
  g_gpu.release(handle(0));
  pass(2);
  launch(0, kForGood, true);
  pass(9'900);
  EXPECT_TRUE(active()) << "nothing else shows that nobody waits for it";
  pass(200);
  EXPECT_FALSE(active());
}

// Prevents: work that was queued at once, of which only the first launches are measured, loses its
// protection after 2 s.
TEST_F(StalledStreams, AQueueThatNoSampleShowsIsNotGivenUpEarly) {
  client_.board().max_hold_ns.store(10 * kMaxHoldNs);
  for (int i = 0; i < 1000; ++i) launch(0, 5 * kMs, i < 8);
  for (int i = 0; i < 90; ++i) {
    launch(1, kMs);
    pass(50);
    ASSERT_TRUE(active()) << i;
  }
}

// Prevents: long work of a stream loses its protection because other streams have short work.
TEST_F(StalledStreams, AStreamThatIsSeenToWorkDoesNotOutliveOthers) {
  client_.board().max_hold_ns.store(10 * kMaxHoldNs);
  for (int i = 0; i < 80; ++i) {
    for (int k = 0; k < 5; ++k) launch(0, 20 * kMs, true);
    launch(1, kMs);
    pass(50);
    ASSERT_TRUE(active()) << i;
  }
}

/// The property, of random programs: stalled streams next to one that works.
struct Program {
  explicit Program(unsigned seed) : random(seed) {}
  std::uint64_t below(std::uint64_t bound) { return random() % bound; }
  std::mt19937 random;
  std::size_t stalled = 1 + below(4);
  bool fed = below(2) != 0;      ///< A stalled stream is given more work now and then.
  bool waits = below(2) != 0;    ///< A thread waits for a stalled stream.
  std::uint64_t end = below(3);  ///< How it learns of the ends: not at all, by queries, by waits.
};

TEST_F(StalledStreams, LeaveTheOthersIdleTimeToBestEffort) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Program program(seed);
    const std::size_t busy = kStreams - 1;
    for (std::size_t i = 0; i < program.stalled; ++i) {
      launch(i, kForGood, true);
      pass(program.below(100));
    }
    const std::uint64_t begin = g_now_ns;
    std::uint64_t idle = 0;
    std::uint64_t open = 0;
    std::unique_ptr<Jobs::Synchronising> waiting;
    if (program.waits) waiting = std::make_unique<Jobs::Synchronising>(jobs_);
    while (g_now_ns < begin + 2 * kMaxHoldNs) {
      for (std::uint64_t i = 1 + program.below(4); i != 0; --i)
        launch(busy, program.below(2 * kMs), program.below(4) == 0);
      EXPECT_TRUE(active());
      while (!g_gpu.idle(handle(busy))) {
        pass(1);
        EXPECT_TRUE(active() || g_gpu.idle(handle(busy))) << "its work is no job";
      }
      if (program.end == 2 && !program.waits)
        Jobs::Synchronising(jobs_).returned(CUDA_SUCCESS, &streams_[busy]);
      for (std::uint64_t i = 10 + program.below(60); i != 0; --i) {
        if (program.fed && program.below(30) == 0) launch(0, kMs, program.below(2) == 0);
        pass(1, program.end == 1);
        if (g_now_ns < begin + kMaxHoldNs + 200 * kMs) continue;
        ++idle;
        if (!active()) ++open;
      }
    }
    EXPECT_GE(static_cast<double>(open), 0.5 * static_cast<double>(idle)) << idle;
    if (waiting != nullptr) waiting->returned(CUDA_SUCCESS, static_cast<Stream*>(nullptr));
    for (std::size_t i = 0; i < program.stalled; ++i) g_gpu.release(handle(i));
    pass(300);
    EXPECT_FALSE(active()) << "all has ended";
  }
}

// Prevents: the work of a stream that goes on is unprotected. It is seen by the queue that runs
// empty, by a sample, by a launch, and by a wait that returns.
TEST_F(StalledStreams, CountAgainOnceTheyMakeProgress) {
  const auto stall = [this](bool measured) {
    launch(0, kForGood);
    for (int i = 0; i < 100; ++i) launch(0, kMs, measured);
    pass(1100);
    ASSERT_FALSE(active());
  };
  stall(true);
  g_gpu.release(handle(0));
  pass(3);
  EXPECT_TRUE(active()) << "a sample was reached";
  pass(90);
  EXPECT_TRUE(active());
  pass(10);
  EXPECT_FALSE(active());
  stall(false);
  launch(0, kMs);
  EXPECT_TRUE(active()) << "nothing says that the launch will not run";
  g_gpu.release(handle(0));
  pass(200);
  EXPECT_FALSE(active());
  stall(true);
  g_gpu.release(handle(0));
  g_gpu.run(101 * kMs);
  Jobs::Synchronising(jobs_).returned(CUDA_SUCCESS, &streams_[0]);
  launch(0, kMs, true);
  EXPECT_TRUE(active());
  pass(5);
  EXPECT_FALSE(active());
}

// Prevents: a stream that is given work in the very moment in which it is found to be stalled, or
// done, runs in no job.
TEST_F(StalledStreams, WorkThatComesDuringTheQueryCounts) {
  launch(0, kForGood, true);
  pass(1100);
  ASSERT_FALSE(active());
  g_gpu.release(handle(0));
  g_gpu.run(0);
  g_at_answer = [this] { launch(0, 5 * kMs); };
  pass(1);
  EXPECT_TRUE(active());
  pass(10);
  ASSERT_FALSE(active());
  launch(0, kForGood, true);
  pass(1100);
  ASSERT_FALSE(active());
  g_gpu.release(handle(0));
  g_gpu.run(0);
  // A launch of a thread that remembers the stream: it is counted, and begins no job.
  g_at_answer = [this] {
    client_->slot().entries[0][shm::Count::kGated].fetch_add(1);
    g_gpu.give(handle(0), 5 * kMs);
  };
  pass(1);
  EXPECT_TRUE(active());
}

// Prevents: a program with kernels of its own in a deep queue loses its protection, because nobody
// has looked at it for max_hold.
TEST_F(StalledStreams, AStreamThatWorksThroughItsQueueIsNotOne) {
  for (int i = 0; i < 300; ++i) {
    launch(0, 10 * kMs, true);
    pass(5);
  }
  for (int i = 0; i < 140; ++i) {
    EXPECT_TRUE(active()) << i;
    pass(10);
  }
  pass(200);
  EXPECT_FALSE(active());
}

// Prevents: a process that was stopped, or held by others, has only stalled streams afterwards.
TEST_F(StalledStreams, TimeInWhichNothingCouldRunDoesNotCount) {
  launch(0, 500 * kMs);
  pass(10);
  g_now_ns += 60'000 * kMs;  // stopped, and so is its work
  pass(100);
  EXPECT_TRUE(active());
  for (int i = 0; i < 10; ++i) {
    g_now_ns += 200 * kMs;
    pass(1);
  }
  EXPECT_TRUE(active()) << "stopped again and again";
  client_->slot().gate.store(2);
  for (int i = 0; i < 2000; ++i) {
    g_now_ns += kMs;
    jobs_.poll();
  }
  client_->slot().gate.store(0);
  pass(100);
  EXPECT_TRUE(active());
  pass(400);
  EXPECT_FALSE(active());
}

// Prevents: a client that is held now and then, by others or for their turns, holds those below for
// as long as a stream of it waits for its host. Seen to fail when each hold began the time anew.
TEST_F(StalledStreams, CountTheTimeBetweenHolds) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::uint64_t longest_ms = 1 + random() % 400;
    launch(0, kForGood, random() % 2 == 0);
    std::uint64_t open_ms = 0;
    while (open_ms < kMaxHoldNs / kMs * 2) {
      EXPECT_TRUE(active() || open_ms > kMaxHoldNs / kMs * 9 / 10);
      client_->slot().gate.store(2);
      pass(1 + random() % longest_ms);
      client_->slot().gate.store(0);
      const std::uint64_t ms = 4 + random() % longest_ms;
      pass(ms);
      open_ms += ms;
    }
    EXPECT_FALSE(active());
    g_gpu.release(handle(0));
    pass(300);
    EXPECT_FALSE(active());
  }
}

TEST_F(StalledStreams, WithoutMaxHoldThereAreNone) {
  client_.board().max_hold_ns.store(0);
  launch(0, kForGood);
  pass(20'000);
  EXPECT_TRUE(active());
}

// Prevents: a stream that ends while it is stalled is asked, or holds a job open later.
TEST_F(StalledStreams, MayEnd) {
  launch(0, kForGood, true);
  pass(1100);
  jobs_.forget(streams_[0]);
  g_gpu.queries = 0;
  pass(100);
  EXPECT_EQ(g_gpu.queries, 0);
  EXPECT_FALSE(jobs_.need_polling());
}

}  // namespace
}  // namespace sluice::intercept::test
