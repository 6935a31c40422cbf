// How a training obeys orders. A micro-batch that is kept although a launch was refused computes
// nonsense; one that fails for another reason must not be repeated; an order that is not obeyed
// keeps inference waiting. The trainer's work is a stand-in that counts, orders come from the
// stand-in of the interposer.
#include "engine/train/micro_batches.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/torch/torch_error.hpp"
#include "tests/support/standins/fake_orders.hpp"

namespace sluice::engine {
namespace {

using test::kBase;
using test::kGiven;
using test::kMistakes;
using test::kPending;
using test::kSlope;
using test::kWaits;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr unsigned kShrink = 1;
constexpr unsigned kDrop = 2;
constexpr unsigned kSleep = 3;
constexpr unsigned kEpoch = 4;

/// Uses 100 bytes, and 10 for each item while a micro-batch runs. Logs what is called.
class Work : public Droppable {
 public:
  void save() override { log.emplace_back("save"); }
  void run(std::size_t start, std::size_t items) override {
    sizes.push_back(items);
    log.emplace_back("run " + std::to_string(start) + "+" + std::to_string(items));
    peak_ = std::max(peak_, 100 + 10 * static_cast<std::uint64_t>(items));
    for (int launch = 0; launch < 3; ++launch) {
      if (sluice_fake_launch() != 0) throw std::runtime_error("CUBLAS_STATUS_EXECUTION_FAILED");
    }
    if (on_run) on_run(items);
  }
  void keep() override { log.emplace_back("keep"); }
  void drop() override { log.emplace_back("drop"); }
  void restore() override {
    log.emplace_back("restore");
    if (on_restore) on_restore();
  }
  void free_memory(std::uint64_t most) override {
    log.emplace_back("free");
    allowed.push_back(most);
    if (on_free) on_free();
    peak_ = std::max(peak_, peak_of_freeing);
  }
  [[nodiscard]] std::optional<MemoryUse> memory() const override {
    if (!on_gpu) return std::nullopt;
    return MemoryUse{100, peak_, 100};
  }
  void restart_peak() override { peak_ = 100; }
  void step(std::uint64_t peak) { peak_ = peak; }

  std::vector<std::string> log;
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t> allowed;  ///< What was asked for when memory was to be freed.
  std::function<void(std::size_t)> on_run;
  std::function<void()> on_restore;
  std::function<void()> on_free;
  bool on_gpu = false;
  std::uint64_t peak_of_freeing = 0;  ///< What is to stay in the cache is allocated meanwhile.

 private:
  std::uint64_t peak_ = 100;
};

class MicroBatchesTest : public testing::Test {
 protected:
  MicroBatchesTest() { sluice_fake_plan(1, 0, 1, 1, "2"); }
  ~MicroBatchesTest() override {
    EXPECT_EQ(sluice_fake_count(kMistakes), 0U);
    EXPECT_EQ(sluice_fake_count(kPending), 0U);
  }

  static MicroBatches::Options of(std::size_t batch, std::size_t largest) {
    MicroBatches::Options options;
    options.batch = batch;
    options.largest = largest;
    return options;
  }
  /// A fit that leaves no room for one item ends the test, which would wait indefinitely.
  static MicroBatches::Options never_waiting(std::size_t batch) {
    MicroBatches::Options options = of(batch, batch);
    options.on_wait = [] { throw std::runtime_error("not even one item fits the grant"); };
    return options;
  }
  /// An order in the first run only.
  void order_in_first_run(unsigned kind) {
    work_.on_run = [this, kind](std::size_t) {
      if (sluice_fake_count(kGiven) == 0) sluice_fake_give(kind);
    };
  }

  Work work_;
};

TEST_F(MicroBatchesTest, CoverTheBatch) {
  MicroBatches micro_batches(work_, of(8, 3));
  micro_batches.run_batch();
  EXPECT_THAT(work_.log, ElementsAre("save", "run 0+3", "keep", "save", "run 3+3", "keep", "save",
                                     "run 6+2", "keep"));
  const EpochCounts counts = micro_batches.take_counts();
  EXPECT_EQ(counts.batches, 1U);
  EXPECT_EQ(counts.tried, 3U);
  EXPECT_EQ(counts.finished, 3U);
  EXPECT_EQ(counts.killed, 0U);
  EXPECT_EQ(counts.micro_batch_size, 2U);
  EXPECT_EQ(micro_batches.take_counts().tried, 0U);
}

TEST_F(MicroBatchesTest, ARefusedLaunchDropsTheMicroBatch) {
  sluice_fake_plan(1, 1, 1, 2, "2");
  MicroBatches micro_batches(work_, of(4, 4));
  micro_batches.run_batch();
  EXPECT_THAT(work_.log,
              ElementsAre("save", "run 0+4", "drop", "free", "restore", "save", "run 0+4", "keep"));
  EXPECT_EQ(micro_batches.take_counts().killed, 1U);
}

TEST_F(MicroBatchesTest, ARefusalThatALibraryHidesDropsTheMicroBatch) {
  order_in_first_run(kDrop);
  MicroBatches micro_batches(work_, of(4, 4));
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(4, 4));
  EXPECT_EQ(micro_batches.take_counts().killed, 1U);
}

TEST_F(MicroBatchesTest, AnOrderToShrinkIsObeyedAfterTheMicroBatch) {
  order_in_first_run(kShrink);
  std::vector<std::string> lines;
  auto options = of(8, 4);
  options.on_adjust = [&](const Adjustment& adjustment) {
    lines.push_back(std::to_string(adjustment.before) + "-" + std::to_string(adjustment.after));
  };
  MicroBatches micro_batches(work_, options);
  micro_batches.run_batch();
  EXPECT_THAT(work_.log, ElementsAre("save", "run 0+4", "keep", "free", "save", "run 4+4", "keep"));
  EXPECT_THAT(lines, ElementsAre("4-4"));
  static_cast<void>(micro_batches.take_counts());
  sluice_fake_give(kShrink);
  micro_batches.run_batch();
  EXPECT_THAT(lines, ElementsAre("4-4", "4-4"))
      << "an epoch does not begin with micro-batches of 0";
}

// Prevents: 26 ms for giving back 10 GB, and as long for taking them again, where inference needs
// 100 MB.
TEST_F(MicroBatchesTest, OnlyWhatExceedsTheGrantIsGivenBack) {
  work_.on_gpu = true;
  const auto allowed_after = [this](unsigned kind, std::uint64_t grant) {
    sluice_fake_plan(1, 0, 1, 1, "2");
    sluice_fake_held(130);  // 30 bytes are outside of the framework
    sluice_fake_grant(grant);
    work_.allowed.clear();
    order_in_first_run(kind);
    MicroBatches(work_, of(4, 4)).run_batch();
    return work_.allowed;
  };
  EXPECT_THAT(allowed_after(kShrink, 1'000'000), ElementsAre(1'000'000 - 30));
  EXPECT_THAT(allowed_after(kDrop, 1'000'000), ElementsAre(1'000'000 - 30));
  EXPECT_THAT(allowed_after(kSleep, 1'000'000), ElementsAre(0));
  EXPECT_THAT(allowed_after(kDrop, SLUICE_NO_LIMIT), ElementsAre(SLUICE_NO_LIMIT));
}

TEST_F(MicroBatchesTest, SleepLastsUntilItsEndIsNews) {
  order_in_first_run(kSleep);
  int waits = 0;
  auto options = of(4, 4);
  options.on_wait = [&] { ++waits; };
  MicroBatches micro_batches(work_, options);
  micro_batches.run_batch();
  EXPECT_EQ(sluice_fake_count(kWaits), 3U);  // the stand-in ends a sleep with the third
  EXPECT_EQ(waits, 2);
  EXPECT_GT(micro_batches.take_counts().waited_ns, 0U);
}

// Prevents: a training that stands still for minutes does not say why.
TEST_F(MicroBatchesTest, LongWaitsAndSleepsAreReportedOnce) {
  std::vector<std::string> said;
  auto options = of(2, 2);
  options.say_after_ns = 0;
  options.on_sleep = [&] { said.emplace_back("sleeps"); };
  options.on_lack = [&](std::uint64_t grant, std::uint64_t held) {
    said.push_back(std::to_string(grant) + ", holds " + std::to_string(held));
    sluice_fake_grant(SLUICE_NO_LIMIT);
  };
  work_.on_gpu = true;
  MicroBatches micro_batches(work_, options);
  micro_batches.run_batch();
  EXPECT_THAT(said, IsEmpty());
  for (int sleep = 0; sleep < 2; ++sleep) {
    sluice_fake_give(kSleep);
    micro_batches.obey_pending();
  }
  EXPECT_THAT(said, ElementsAre("sleeps", "sleeps"));
  sluice_fake_held(120);
  sluice_fake_grant(109);
  micro_batches.run_batch();
  EXPECT_THAT(said, ElementsAre("sleeps", "sleeps", "109, holds 120"));

  options.say_after_ns = 3'600'000'000'000;
  sluice_fake_give(kSleep);
  MicroBatches(work_, options).run_batch();
  EXPECT_EQ(said.size(), 3U) << "it was not long";
}

TEST_F(MicroBatchesTest, AnEpochIsDroppedOnlyIfItCanBeRestored) {
  order_in_first_run(kEpoch);
  MicroBatches(work_, of(4, 4)).run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(4, 4));

  sluice_fake_plan(1, 0, 1, 1, "2");
  auto options = of(4, 4);
  options.restores_epochs = true;
  int runs = 0;
  work_.on_run = [&runs](std::size_t) {
    if (++runs == 3) sluice_fake_give(kEpoch);
  };
  MicroBatches micro_batches(work_, options);
  micro_batches.run_batch();
  micro_batches.run_batch();
  EXPECT_THROW(micro_batches.run_batch(), EpochDropped);
  micro_batches.run_batch();
  const EpochCounts counts = micro_batches.take_counts();
  EXPECT_EQ(counts.batches, 1U);
  EXPECT_EQ(counts.tried, 4U);
  EXPECT_EQ(counts.killed, 3U);  // also the two that were whole
  EXPECT_EQ(counts.finished, 1U);
}

TEST_F(MicroBatchesTest, AnErrorOfTheWorkPasses) {
  work_.on_run = [](std::size_t) { throw std::runtime_error("CUBLAS_STATUS_EXECUTION_FAILED"); };
  MicroBatches micro_batches(work_, of(4, 4));
  EXPECT_THROW(micro_batches.run_batch(), std::runtime_error);
  EXPECT_THAT(work_.sizes, ElementsAre(4));
}

TEST_F(MicroBatchesTest, ARefusalOfAServerThatDiedIsObeyed) {
  work_.on_run = [](std::size_t) {
    if (sluice_fake_count(kGiven) > 0) return;
    sluice_fake_give(kDrop);
    ASSERT_EQ(sluice_fake_launch(), 701);
    sluice_fake_void_order();
    throw std::runtime_error("CUDA error: too many resources requested for launch");
  };
  MicroBatches(work_, of(4, 4)).run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(4, 4));
}

TEST_F(MicroBatchesTest, NothingIsRefusedOutsideOfMicroBatches) {
  MicroBatches micro_batches(work_, of(4, 4));
  micro_batches.run_batch();
  sluice_fake_give(kDrop);
  EXPECT_EQ(sluice_fake_launch(), 0);
  micro_batches.obey_pending();
  sluice_fake_give(kDrop);
  EXPECT_EQ(sluice_fake_launch(), 0);
  micro_batches.obey_pending();
}

TEST_F(MicroBatchesTest, AStaleErrorAfterARefusalDropsTheMicroBatch) {
  const auto tries_with = [this](int errors, const std::string& text) {
    sluice_fake_plan(1, 1, 1, 1, "2");
    work_.sizes.clear();
    work_.on_run = [&errors, &text](std::size_t) {
      if (errors-- > 0) throw std::runtime_error(text);
    };
    MicroBatches(work_, of(4, 4)).run_batch();
    return work_.sizes.size();
  };
  const std::string stale = "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART";
  EXPECT_EQ(tries_with(1, stale), 3U);
  EXPECT_THROW(tries_with(4, stale), std::runtime_error);
  EXPECT_THROW(tries_with(1, "shape mismatch"), std::runtime_error);
}

// Prevents: CUDA reports the refused launch once more while memory is given back, which ends the
// training. Seen on an H200. Other errors pass, and one that stays.
TEST_F(MicroBatchesTest, AStaleErrorDoesNotEndTheDrop) {
  const auto failing = [](int times, const char* text) {
    return [times, text]() mutable {
      if (times-- > 0) throw std::runtime_error(text);
    };
  };
  work_.on_free = failing(3, "CUDA error: too many resources requested for launch");
  work_.on_restore = failing(3, "CUDA error: too many resources requested for launch");
  order_in_first_run(kDrop);
  MicroBatches(work_, of(2, 2)).run_batch();
  EXPECT_EQ(work_.allowed.size(), 4U);
  work_.on_free = failing(1, "size mismatch");
  sluice_fake_give(kShrink);
  MicroBatches micro_batches(work_, of(2, 2));
  EXPECT_THROW(micro_batches.obey_pending(), std::runtime_error);
  work_.on_free = failing(4, "CUDA error: unspecified launch failure");
  EXPECT_THROW(micro_batches.obey_pending(), std::runtime_error);
  micro_batches.obey_pending();
}

TEST_F(MicroBatchesTest, NothingIsRefusedAfterADrop) {
  sluice_fake_plan(1, 1, 1, 1, "2");
  work_.on_restore = [] {
    if (sluice_fake_count(kGiven) > 1) return;
    sluice_fake_give(kDrop);
    EXPECT_EQ(sluice_fake_launch(), 0);
  };
  MicroBatches(work_, of(4, 4)).run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(4, 4));
}

TEST_F(MicroBatchesTest, MeasuresTwoSizesAndReportsTheFitAfterAFirstBatch) {
  work_.on_gpu = true;
  sluice_fake_held(130);  // 30 bytes are outside of the framework
  MicroBatches micro_batches(work_, of(16, 16));
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(1, 1, 8, 6));
  EXPECT_EQ(sluice_fake_count(kSlope), 0U);
  micro_batches.run_batch();
  EXPECT_EQ(sluice_fake_count(kBase), 130U);
  EXPECT_EQ(sluice_fake_count(kSlope), 10U);
  EXPECT_EQ(work_.sizes.back(), 16U);
  EXPECT_EQ(micro_batches.most_bytes(), 100U);
}

TEST_F(MicroBatchesTest, SizesFollowTheGrantAndTooSmallAGrantIsWaitedFor) {
  work_.on_gpu = true;
  MicroBatches micro_batches(work_, of(16, 16));
  micro_batches.run_batch();
  sluice_fake_grant(100 + 10 * 12);
  work_.sizes.clear();
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(8, 8));
  EXPECT_EQ(micro_batches.take_counts().waited_ns, 0U);

  sluice_fake_grant(109);
  const auto waits = [] { return sluice_fake_count(kWaits); };  // of 2 ms each
  std::thread later([&waits, before = waits()] {
    while (waits() < before + 10) std::this_thread::yield();
    sluice_fake_grant(SLUICE_NO_LIMIT);
  });
  work_.sizes.clear();
  micro_batches.run_batch();
  later.join();
  EXPECT_THAT(work_.sizes, ElementsAre(16));
  EXPECT_GT(micro_batches.take_counts().waited_ns, 10'000'000U);
}

// Prevents: a training waits indefinitely for a grant just above what its GPU can give. Seen on an
// H200.
TEST_F(MicroBatchesTest, OneItemIsTriedIfNoLargerGrantComes) {
  work_.on_gpu = true;
  MicroBatches micro_batches(work_, of(2, 2));
  micro_batches.run_batch();
  sluice_fake_grant(109);
  work_.sizes.clear();
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(1, 1));
  EXPECT_GT(micro_batches.take_counts().waited_ns, 900'000'000U);
}

// A step cannot be repeated, so it may exceed the grant.
TEST_F(MicroBatchesTest, WhatAStepTookBeyondTheGrantIsGivenBack) {
  work_.on_gpu = true;
  MicroBatches micro_batches(work_, of(2, 2));
  sluice_fake_grant(1000);
  for (const std::uint64_t held : {1000, 1001, 1001, 1002}) {
    sluice_fake_held(held);
    micro_batches.obey_pending();
  }
  EXPECT_THAT(work_.allowed, ElementsAre(1000 - 901, 1000 - 902)) << "901 bytes are not torch's";
}

// Prevents: micro-batches of one item after the first drop, because the memory of the dropped one
// counted as memory that the training always needs. Seen on an H200.
TEST_F(MicroBatchesTest, TheMemoryOfADroppedMicroBatchSaysNothing) {
  work_.on_gpu = true;
  MicroBatches micro_batches(work_, never_waiting(16));
  micro_batches.run_batch();
  work_.sizes.clear();
  work_.on_run = [](std::size_t items) {
    if (items != 16 || sluice_fake_count(kGiven) != 0) return;
    sluice_fake_grant(100 + 10 * 12);
    sluice_fake_give(kDrop);
  };
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(16, 8, 8));
  sluice_fake_grant(SLUICE_NO_LIMIT);
}

// Prevents: micro-batches of one item after the first order that comes between two micro-batches,
// and an inference that gets no more memory. Seen on an H200 under colocate-l2.
TEST_F(MicroBatchesTest, TheMemoryOfGivingBackSaysNothing) {
  work_.on_gpu = true;
  work_.peak_of_freeing = 5000;
  MicroBatches micro_batches(work_, never_waiting(16));
  micro_batches.run_batch();
  sluice_fake_grant(100 + 10 * 12);
  sluice_fake_give(kShrink);
  micro_batches.run_batch();
  work_.sizes.clear();
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(8, 8));
  EXPECT_EQ(sluice_fake_count(kBase), 100U);
  sluice_fake_grant(SLUICE_NO_LIMIT);
}

// An optimizer step counts, although an order comes after it.
TEST_F(MicroBatchesTest, TheMemoryBeforeAnOrderCounts) {
  work_.on_gpu = true;
  MicroBatches micro_batches(work_, of(16, 16));
  micro_batches.run_batch();
  work_.step(900);
  sluice_fake_give(kShrink);
  micro_batches.run_batch();
  micro_batches.run_batch();
  EXPECT_EQ(sluice_fake_count(kBase), 900U - 10);
}

TEST_F(MicroBatchesTest, LackOfMemoryIsExplainedByAGrantOnly) {
  work_.on_run = [](std::size_t items) {
    if (items > 3) throw OutOfMemory("CUDA out of memory");
  };
  EXPECT_THROW(MicroBatches(work_, of(8, 8)).run_batch(), OutOfMemory);
  sluice_fake_grant(1'000'000);
  work_.sizes.clear();
  MicroBatches(work_, of(8, 8)).run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(8, 4, 3, 3, 2));
  sluice_fake_grant(SLUICE_NO_LIMIT);
}

TEST_F(MicroBatchesTest, ALibraryMayNotSayThatItLackedMemory) {
  sluice_fake_grant(1'000'000);
  work_.on_run = [](std::size_t items) {
    if (items <= 3) return;
    sluice_fake_refuse_memory();
    throw std::runtime_error("GET was unable to find an engine to execute this computation");
  };
  MicroBatches micro_batches(work_, of(8, 8));
  micro_batches.run_batch();
  EXPECT_THAT(work_.sizes, ElementsAre(8, 4, 3, 3, 2));
  work_.sizes.clear();
  sluice_fake_grant(2'000'000);
  work_.on_run = [](std::size_t) {
    sluice_fake_refuse_memory();
    throw std::runtime_error("its own");
  };
  EXPECT_THROW(micro_batches.run_batch(), std::runtime_error);
  EXPECT_THAT(work_.sizes, ElementsAre(8, 4, 3, 2));
  sluice_fake_grant(SLUICE_NO_LIMIT);
}

}  // namespace
}  // namespace sluice::engine
