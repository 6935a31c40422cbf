// How far a program may run ahead of the GPU, on the recording driver.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sluice/sluice.h"
#include "tests/intercept/broker.hpp"
#include "tests/intercept/launcher.hpp"

namespace sluice::intercept::test {
namespace {

class Pacing : public Session {};

// Prevents: the queue of a program whose memory is wanted takes as long as the driver lets it.
TEST_F(Pacing, AheadBoundsTheQueueByTime) {
  attach("device:200us,ahead:2ms");
  outrank();
  CUstream stream = make_stream();
  learn(1, 0.1F);
  for (int i = 0; i < 50; ++i) kernel(1, stream);  // its marks are made
  fake::pause();
  std::atomic<int> done{0};
  std::atomic<bool> over{false};
  std::jthread program([&] {
    while (!over.load()) {
      kernel(1, stream);
      ++done;
    }
  });
  const auto stops = [&] {
    const int before = done.load();
    std::this_thread::sleep_for(kInVain);
    return done.load() == before;
  };
  EXPECT_TRUE(eventually(stops));
  const int queued = done.load();
  EXPECT_GE(queued, 12) << "the GPU runs dry";
  EXPECT_LE(queued, 22) << "20 launches of 0.1 ms, and one more";
  fake::finish_all();
  EXPECT_TRUE(eventually([&] { return done.load() > queued; }));
  EXPECT_TRUE(eventually(stops));
  EXPECT_LE(done.load() - queued, 22);
  over.store(true);
  fake::resume();
}

// Prevents: a program whose memory is wanted waits for its queue before it learns of that.
TEST_F(Pacing, AnOrderEndsTheWaitOfAProgramThatRanAhead) {
  attach("device:200us,ahead:1ms");
  const Broker broker(outrank(), slot());
  EXPECT_EQ(sluice_order(), 0U);
  CUstream stream = make_stream();
  learn(1, 0.6F);
  for (int i = 0; i < 50; ++i) kernel(1, stream);
  fake::pause();
  std::atomic<int> result{CUDA_SUCCESS};
  std::jthread program([&] {
    while (result.load() == CUDA_SUCCESS) result = kernel(1, stream);
  });
  std::this_thread::sleep_for(kInVain);
  EXPECT_EQ(result.load(), CUDA_SUCCESS);
  broker.give(shm::MemoryOrder::kDrop);
  EXPECT_TRUE(eventually([&] { return result.load() == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; }));
  fake::resume();
}

TEST_F(Pacing, WithoutAheadNothingBoundsTheQueue) {
  attach("device:200us");
  outrank();
  CUstream stream = make_stream();
  learn(1, 0.4F);
  fake::pause();
  Launcher launcher(200, stream);
  EXPECT_TRUE(eventually([&] { return launcher.done() == 200; }));
  fake::resume();
}

}  // namespace
}  // namespace sluice::intercept::test
