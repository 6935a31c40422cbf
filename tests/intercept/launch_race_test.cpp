// Two sides that must see each other without a lock: one of many rounds goes wrong where an order
// of memory is too weak, so these run many.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "intercept/client/process.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/launch.hpp"
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
      while (done_.load() != round) pause();
    }
    begun_.store(kOver);
    partner.join();
  }
  /// So that the two meet at ever other distances.
  static void spin(int steps) {
    for (int i = 0; i < steps; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

 private:
  static constexpr int kOver = -1;
  /// A machine with fewer processors than busy threads needs the other one to get its turn.
  static void pause() {
    static thread_local int tries = 0;
    if (++tries % 4096 == 0) std::this_thread::yield();
  }
  static bool wait_for(const std::atomic<int>& counter, int round) {
    for (;;) {
      const int now = counter.load();
      if (now == round) return true;
      if (now == kOver) return false;
      pause();
    }
  }
  std::atomic<int> begun_{0};
  std::atomic<int> done_{0};
};

Worker& idle_worker() {
  static Worker& worker = *std::make_unique<Worker>("idle", [] {
                             return Worker::Sleep{1'000'000'000, true};
                           }).release();
  return worker;
}

// Prevents: work on the GPU in no job, because a launch saw the old version and the synchronise
// that ended the job saw the old count.
TEST(LaunchRace, ALaunchIsSeenByWhoEndsTheJobOrBeginsOne) {
  OwnClient client{5};
  Jobs jobs{*client, idle_worker(), idle_worker(), false};
  Stream stream;
  stream.key.handle = reinterpret_cast<CUstream>(16);
  CUstream const named = stream.key.handle;
  std::atomic<bool> passed{false};
  std::atomic<int> in_no_job{0};
  std::atomic<int> ended{0};
  std::atomic<bool> remembers{false};

  // As Launch::prepare() has it.
  const auto touch_and_remember = [&] {
    const std::uint64_t version = g_process.version.load();
    jobs.touch(stream);
    RememberedStream& place = t_streams.place_for(named);
    place.version = version;
    place.stream = &stream;
    place.kind = shm::Count::kGated;
    place.exclusive = true;
    place.counts = &client->slot().entries.front().stripe(0);
    place.gate = &client->slot().gate;
    place.must_pace = &client->slot().outranked;
  };
  Rounds().run(
      400'000,
      [&](int round) {
        while (!remembers.load()) continue;
        Jobs::Synchronising synchronising(jobs);
        passed.store(true);  // from here on the other thread launches
        Rounds::spin(round % 40);
        synchronising.returned(CUDA_SUCCESS, &stream);
      },
      [&](int round) {
        touch_and_remember();
        remembers.store(true);
        while (!passed.load()) continue;
        Rounds::spin(round / 40 % 40);
        if (pass(Entry::cuLaunchKernel, named)) {
          // The job must live on: wait until the synchronise has decided.
          for (int i = 0; i < 2000; ++i) {
            if (!client.active()) {
              in_no_job.fetch_add(1);
              break;
            }
          }
        } else {
          ended.fetch_add(1);
        }
        remembers.store(false);
        passed.store(false);
      });
  EXPECT_EQ(in_no_job.load(), 0);
  EXPECT_GT(ended.load(), 0) << "the two never met";
}

// Prevents: a stream or context that ends while the driver is asked about it.
TEST(LaunchRace, AQuestionIsSeenByWhoForbidsItOrIsNotAsked) {
  std::atomic<int> banned{0};
  std::atomic<int> answered{0};
  int together = 0;
  int asked = 0;
  const auto stream = reinterpret_cast<CUstream>(16);
  Rounds().run(
      200'000,
      [&](int round) {
        Rounds::spin(round % 30);
        {
          const DriverQuery query(nullptr, stream);
          if (query) {
            ++asked;
            for (int i = 0; i < 300 && banned.load() != round; ++i) continue;
            together += banned.load() == round ? 1 : 0;
          }
        }
        answered.store(round);
      },
      [&](int round) {
        Rounds::spin(round / 30 % 30);
        const QueryBan quiet = QueryBan::about_stream(stream);
        banned.store(round);
        while (answered.load() != round) continue;
      });
  EXPECT_EQ(together, 0);
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace sluice::intercept::test
