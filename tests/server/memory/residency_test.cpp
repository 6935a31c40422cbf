// Weights move while batches run: no batch may run without its weights, none may lose them, and
// each one that waits hears what has become of them.
#include "residency_test.hpp"

#include <random>

namespace sluice::server::memory {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ResidencyTest, AModelOutsideComesInAndAnIdleOneLeaves) {
  Residency& residency = start();
  FakeWeights& a = add(1, 60);
  EXPECT_TRUE(residency.acquire(1, kNever));
  residency.release(1, false);
  device_.free = 100 * kMiB;  // so that the second may be loaded by its loader, too
  FakeWeights& b = add(2, 60);
  // Both do not fit. The first was used longer ago.
  EXPECT_TRUE(eventually([&] { return !a.loaded(); }));
  EXPECT_TRUE(b.loaded());
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next(), std::make_pair(1U, std::string()));
  EXPECT_EQ(loaded_, 1) << "a first load, by its loader, is none";
  EXPECT_TRUE(residency.admit(1));
  EXPECT_TRUE(a.loaded());
  EXPECT_FALSE(b.loaded());
  EXPECT_EQ(residency.counters().resident_bytes, 60 * kMiB);
  EXPECT_EQ(residency.counters().evictions, 2U);
  EXPECT_TRUE(eventually([&] { return evicted_ == 2; }));
  EXPECT_EQ(residency.counters().loads, 1U);
}

// Prevents: an illegal access to memory, which ends the server. Two models left at once, and a
// batch of the second began while the driver took the memory of the first.
TEST_F(ResidencyTest, ABatchDoesNotBeginOnWeightsThatAreAboutToLeave) {
  Residency& residency = start();
  FakeWeights& first = add(1, 40);
  add(2, 40);
  std::atomic<int> began{0};
  std::atomic<int> waits{0};
  first.on_evict = [&] { ++(residency.acquire(2, kNever) ? began : waits); };
  device_.free = 100 * kMiB;  // so that the third may be loaded by its loader, too
  add(3, 90);
  EXPECT_TRUE(eventually([&] { return began + waits > 0; }));
  EXPECT_EQ(began, 0);
  first.on_evict = nullptr;
}

TEST_F(ResidencyTest, AModelWithoutWeightsNeverWaits) {
  Residency& residency = start();
  residency.add(7, {});
  EXPECT_TRUE(residency.acquire(7, kNever));
  residency.release(7, false);
  EXPECT_TRUE(residency.acquire(8, kNever));
}

TEST_F(ResidencyTest, ABatchMayBeginWithItsFirstBlock) {
  Residency& residency = start();
  FakeWeights& a = add(1, 10, 2);
  evict_idle();
  a.copied = 0;
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_TRUE(eventually([&] { return a.loaded(); }));
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(residency.resident(1));
  EXPECT_FALSE(residency.admit(1));
  a.copied = 1;
  EXPECT_EQ(next().first, 1U);
  EXPECT_TRUE(residency.admit(1));
}

// Prevents: a request that goes to a device without the weights, because nobody has waited for them
// yet, while another device has them.
TEST_F(ResidencyTest, TheFirstWaitIsAtLeastThatForTheCopy) {
  Residency& residency = start();
  add(1, 10);
  EXPECT_EQ(residency.cold_ns(1), 0U);
  evict_idle();
  EXPECT_GT(residency.cold_ns(1), 100'000U);
  EXPECT_LT(residency.cold_ns(1), 1'000'000U);
}

// Prevents: requests of a model that wait although its weights are there.
TEST_F(ResidencyTest, WeightsThatArriveBetweenTwoLooksAreSeen) {
  Residency& residency = start();
  FakeWeights& a = add(1, 10);
  evict_idle();
  a.late = true;
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next(), std::make_pair(1U, std::string()));
}

TEST_F(ResidencyTest, BatchesThatWaitKeepTheirOrder) {
  Residency& residency = start();
  FakeWeights& a = add(1, 10);
  evict_idle();
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().first, 1U);
  // The weights are in, but an older batch has not been admitted yet.
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_TRUE(residency.admit(1));
  EXPECT_TRUE(residency.admit(1));
  EXPECT_TRUE(residency.acquire(1, kNever));
  EXPECT_EQ(a.loads, 2);
}

TEST_F(ResidencyTest, ABatchThatLeavesTakesItsWishWithIt) {
  Residency& residency = start();
  FakeWeights& a = add(1, 60);
  EXPECT_TRUE(residency.acquire(1, kNever));
  device_.free = 100 * kMiB;
  FakeWeights& b = add(2, 60);
  EXPECT_TRUE(eventually([&] { return !b.loaded(); }));
  EXPECT_FALSE(residency.acquire(2, kNever));
  residency.release(2, true);
  residency.release(1, false);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(a.loaded());
  EXPECT_FALSE(b.loaded());
}

TEST_F(ResidencyTest, AModelInUseMakesRoomBetweenItsBatches) {
  options_.broker.patience_ns = 5'000'000;
  Residency& residency = start();
  FakeWeights& a = add(1, 60);
  EXPECT_TRUE(residency.acquire(1, kNever));
  device_.free = 100 * kMiB;
  FakeWeights& b = add(2, 60);
  EXPECT_TRUE(eventually([&] { return !b.loaded(); }));
  EXPECT_FALSE(residency.acquire(2, kNever));
  // From some time on, new batches of the first model wait.
  EXPECT_TRUE(eventually([&] {
    if (!residency.acquire(1, kNever)) return true;
    residency.release(1, false);
    return false;
  }));
  EXPECT_TRUE(a.loaded());
  residency.release(1, false);
  EXPECT_EQ(next().first, 2U);
  EXPECT_TRUE(residency.admit(2));
  EXPECT_FALSE(a.loaded());
  residency.release(2, false);
  EXPECT_EQ(next().first, 1U);
  EXPECT_TRUE(residency.admit(1));
}

TEST_F(ResidencyTest, TheReasonOfAFailureArrives) {
  options_.broker.give_up_ns = 2'000'000'000;
  Residency& residency = start();
  FakeWeights& a = add(1, 60);
  evict_idle();
  a.fail = true;
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_THAT(next().second, HasSubstr("the file is gone"));
  residency.release(1, true);
  a.fail = false;
  // Somebody else has the memory.
  device_.free = 0;
  EXPECT_FALSE(residency.acquire(1, kNever));
  std::pair<std::uint32_t, std::string> found;
  do {
    found = next();
  } while (found.second.find("the file is gone") != std::string::npos);
  EXPECT_THAT(found.second, HasSubstr("no memory"));
}

TEST_F(ResidencyTest, MemoryThatSomebodyElseHoldsIsMadeUpForByIdleModels) {
  Residency& residency = start();
  FakeWeights& a = add(1, 40);
  FakeWeights& b = add(2, 40);
  static_cast<void>(a);
  evict_idle();
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().first, 1U);
  EXPECT_TRUE(residency.admit(1));
  residency.release(1, false);
  device_.free = 10 * kMiB;  // the pool should have 60
  EXPECT_FALSE(residency.acquire(2, kNever));
  EXPECT_EQ(next(), std::make_pair(2U, std::string()));
  EXPECT_FALSE(a.loaded());
  EXPECT_TRUE(b.loaded());
}

// Prevents: while a model loads for the first time, others are refused for good, because its
// memory counts as memory of the server that never becomes free.
TEST_F(ResidencyTest, AModelThatLoadsDoesNotCountAsTheServerItself) {
  held_ = 20 * kMiB;
  Residency& residency = start();
  FakeWeights& cold = add(1, 50);
  evict_idle();
  EXPECT_TRUE(eventually([&] { return !cold.loaded(); }));
  {
    Residency::Room room(residency);
    held_ = 80 * kMiB;  // it has taken 60
    EXPECT_EQ(residency.counters().loading_bytes, 60 * kMiB);
    EXPECT_EQ(residency.counters().other_bytes, 20 * kMiB);
    EXPECT_FALSE(residency.acquire(1, kNever));
    EXPECT_TRUE(eventually([&] { return residency.counters().short_ns > 0; }));
    EXPECT_FALSE(cold.loaded());
    add(2, 60, 1, [this] { held_ = 20 * kMiB; });
  }
  // The second is idle, so it makes room.
  EXPECT_EQ(next(), std::make_pair(1U, std::string()));
  EXPECT_TRUE(eventually([&] { return residency.counters().short_ns == 0; }));
  EXPECT_EQ(residency.counters().loading_bytes, 0U);
  EXPECT_EQ(residency.counters().other_bytes, 0U);
}

TEST_F(ResidencyTest, ThereIsNoRoomWithoutMemory) {
  options_.broker.give_up_ns = 2'000'000'000;
  Residency& residency = start();
  {
    Residency::Room room(residency);
    EXPECT_FALSE(room.make(kMiB)) << "the whole pool is free already";
  }
  add(1, 60);
  EXPECT_TRUE(residency.acquire(1, kNever));
  Residency::Room room(residency);
  EXPECT_FALSE(room.make(kMiB)) << "the model is in use";
  residency.release(1, false);
  EXPECT_TRUE(room.make(kMiB) || residency.counters().resident_bytes == 0)
      << "the model has left, for this wish or already for the refused one";
}

TEST_F(ResidencyTest, NobodyWaitsForRoomAfterTheEnd) {
  Residency& residency = start();
  add(1, 60);
  EXPECT_TRUE(residency.acquire(1, kNever));
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(20));
    residency.stop();
  });
  Residency::Room room(residency);
  EXPECT_FALSE(room.make(50 * kMiB));
  ends.join();
}

// Prevents: a server on an unusable device that neither ends nor answers.
TEST_F(ResidencyTest, ADeviceThatIsLostDuringALoadIsReported) {
  may_be_lost_ = true;
  Residency& residency = start();
  FakeWeights& a = add(1, 60);
  evict_idle();
  a.lost = true;
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_THAT(lost(), ElementsAre("the device is gone"));
  {
    Residency::Room room(residency);
    EXPECT_FALSE(room.make(kMiB)) << "nobody makes room any more";
  }
  residency.stop();
}

// Prevents: a load that waits for room indefinitely, so the server cannot end.
TEST_F(ResidencyTest, ADeviceThatIsLostDuringAnEvictionEndsTheWaitForRoom) {
  may_be_lost_ = true;
  Residency& residency = start();
  add(1, 60).lost = true;
  {
    Residency::Room room(residency);
    EXPECT_FALSE(room.make(kMiB));
  }
  EXPECT_THAT(lost(), ElementsAre("the device is gone"));
  residency.stop();
}

TEST_F(ResidencyTest, UnderLoadNoBatchRunsWithoutWeights) {
  options_.broker.patience_ns = 1'000'000;
  options_.broker.max_idle_ns = 3'000'000;
  options_.broker.cold_cache_bytes = 20 * kMiB;
  Residency& residency = start();
  device_.free = 1000 * kMiB;
  constexpr std::uint32_t kModels = 6;
  for (std::uint32_t i = 0; i < kModels; ++i) add(i, 20 + 5 * i);
  std::mt19937 random(1);
  int ran = 0;
  std::vector<int> waiting(kModels);
  std::vector<std::uint32_t> running;
  const auto begin = [&](std::uint32_t model) {
    ++weights_[model]->running;
    weights_[model]->run();
    running.push_back(model);
    ++ran;
  };
  const std::uint64_t begin_ns = base::monotonic_ns();
  const auto goes_on = [&] {
    const std::uint64_t took_ns = base::monotonic_ns() - begin_ns;
    // A machine with other work gets more time.
    return took_ns < 1'000'000'000 || (ran <= 1000 && took_ns < 20'000'000'000);
  };
  while (goes_on()) {
    const std::uint32_t model = random() % kModels;
    if (running.size() < 4 && random() % 2 == 0) {
      if (residency.acquire(model, kNever)) {
        begin(model);
      } else {
        ++waiting[model];
      }
    } else if (!running.empty()) {
      const std::uint32_t ends = running.back();
      running.pop_back();
      --weights_[ends]->running;
      residency.release(ends, false);
    }
    for (std::uint32_t i = 0; i < kModels; ++i) {
      while (waiting[i] > 0 && residency.admit(i)) {
        --waiting[i];
        begin(i);
      }
    }
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  residency.stop();
  EXPECT_GT(ran, 1000);
  for (const auto& weights : weights_) {
    EXPECT_EQ(weights->faults, 0);
    EXPECT_GT(weights->evictions, 0);
  }
}

}  // namespace
}  // namespace sluice::server::memory
