// Two sides that must see each other without a lock: a few of many rounds go wrong where an order
// of memory is too weak.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "intercept/driver/process.hpp"
#include "intercept/hooks/launch.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/launch_count.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

/// Two threads do one round after the other, each at the same moment.
class Rounds {
 public:
  template <class One, class Other>
  void run(int most, One one, Other other) {
    const auto end = std::chrono::steady_clock::now() + 4s;
    std::thread partner([&] {
      for (int round = 1; wait_for(begun_, round); ++round) {
        other(round);
        done_.store(round);
      }
    });
    for (int round = 1; round <= most && std::chrono::steady_clock::now() < end; ++round) {
      begun_.store(round);
      one(round);
      while (done_.load() != round) continue;
    }
    begun_.store(kOver);
    partner.join();
  }

 private:
  static constexpr int kOver = -1;
  static bool wait_for(const std::atomic<int>& counter, int round) {
    for (;;) {
      const int now = counter.load();
      if (now == round) return true;
      if (now == kOver) return false;
    }
  }
  std::atomic<int> begun_{0};
  std::atomic<int> done_{0};
};

/// Delays one of the two so that each of them comes first about as often: at that distance they
/// meet.
class Meeting {
 public:
  void wait() const {
    for (int i = 0; i < steps_ + round_ % kStep; ++i)
      std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  void came(bool first) noexcept {
    ++round_;
    ++(first ? first_ : last_);
    steps_ = std::clamp(steps_ + (first ? kStep : -kStep), 0, kMost);
  }
  [[nodiscard]] int least() const { return std::min(first_, last_); }

 private:
  static constexpr int kStep = 16;
  static constexpr int kMost = 4096;  // some microseconds: the other one does not run at all
  int steps_ = 0;
  int round_ = 0;
  int first_ = 0;
  int last_ = 0;
};

Worker& idle_worker() {
  static Worker& worker = *std::make_unique<Worker>("idle", [] {
                             return Worker::Sleep{1'000'000'000, true};
                           }).release();
  return worker;
}

// Prevents: work on the GPU in no job, because a launch saw the old version and the synchronise
// that ended the job saw the old count. Seen to fail, in thousands of 200,000 rounds, without the
// membarrier in order_launch_counts().
TEST(LaunchRace, ALaunchIsSeenByWhoEndsTheJobOrBeginsOne) {
  OwnClient client{5};
  Jobs jobs{*client, idle_worker(), idle_worker(), false};
  OwnStream stream;
  stream.key.handle = reinterpret_cast<CUstream>(16);
  CUstream const named = stream.key.handle;
  std::atomic<bool> passed{false};
  std::atomic<int> in_no_job{0};
  std::atomic<bool> remembers{false};
  Meeting meeting;

  // As Launch::prepare() has it.
  const auto touch_and_remember = [&] {
    const std::uint64_t version = g_process.version.load();
    jobs.touch(stream);
    RememberedStream& place = t_streams.place_for(named);
    place.version = version;
    place.stream = &stream;
    place.kind = shm::Count::kGated;
    place.exclusive = true;
    place.counts =
        &client->slot().entries.front().stripe(static_cast<std::size_t>(launch_stripe()));
    place.gate = &client->slot().gate;
    place.outranked = &client->slot().outranked;
  };
  Rounds().run(
      400'000,
      [&](int) {
        while (!remembers.load()) continue;
        Jobs::Synchronising synchronising(jobs);
        passed.store(true);  // from here on the other thread launches
        synchronising.returned(CUDA_SUCCESS, &stream);
      },
      [&](int) {
        touch_and_remember();
        remembers.store(true);
        while (!passed.load()) continue;
        meeting.wait();
        const bool first = pass(Entry::cuLaunchKernel, named);
        if (first) {
          // The job must live on: wait until the synchronise has decided.
          for (int i = 0; i < 2000; ++i) {
            if (!client.active()) {
              in_no_job.fetch_add(1);
              break;
            }
          }
        }
        meeting.came(first);
        remembers.store(false);
        passed.store(false);
      });
  EXPECT_EQ(in_no_job.load(), 0);
  if (meeting.least() == 0) GTEST_SKIP() << "the two never met";
}

}  // namespace
}  // namespace sluice::intercept::test
