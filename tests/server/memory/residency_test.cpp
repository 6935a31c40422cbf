// Weights move while batches run: no batch may run without its weights, none may lose them, and
// each one that waits hears what has become of them.
#include "server/memory/residency.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/clock.hpp"
#include "tests/server/memory/fake_trainer.hpp"
#include "tests/server/memory/fake_weights.hpp"

namespace sluice::server::memory {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr auto kPatience = std::chrono::seconds(10);

class ResidencyTest : public testing::Test {
 protected:
  ResidencyTest() {
    options_.broker.pool_bytes = 100 * kMiB;
    options_.broker.max_idle_ns = 0;
    options_.broker.page_bytes = options_.broker.slack_bytes = kMiB;
    device_.free = 100 * kMiB;
  }
  Residency& start(training::Trainer* trainer = nullptr) {
    ResidencyEvents events;
    events.settled = [this](std::uint32_t model, const std::string& error) {
      const std::lock_guard lock(mutex_);
      settled_.emplace_back(model, error);
      changed_.notify_all();
    };
    events.context_lost = [](const std::string& why) { ADD_FAILURE() << why; };
    events.handover = [this](const training::Handover& handover) {
      const std::lock_guard lock(mutex_);
      handovers_.push_back(handover);
      changed_.notify_all();
    };
    events.taken = events.loaded = [](std::uint64_t) {};
    events.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    events.held = [this] { return held_.load(); };
    residency_ = std::make_unique<Residency>(options_, trainer, std::move(events));
    return *residency_;
  }
  /// A model, loaded.
  FakeWeights& add(std::uint32_t model, std::uint64_t mib, std::size_t blocks = 1) {
    weights_.push_back(std::make_unique<FakeWeights>(device_, mib * kMiB, blocks));
    residency_->add(model, {weights_.back().get()});
    return *weights_.back();
  }
  /// All models leave, as for a model that needs the whole pool.
  void evict_idle() {
    Residency::Room room(*residency_);
    EXPECT_TRUE(room.make(options_.broker.pool_bytes));
  }
  /// A trainer that obeys, has 80 MiB, and needs 11 at least.
  static void attach(FakeTrainer& trainer) {
    trainer.set({.attached = true,
                 .obeys = true,
                 .held = 80 * kMiB,
                 .grant = 80 * kMiB,
                 .base = 10 * kMiB,
                 .slope = kMiB});
  }
  /// The next model that settles, and why it does not run.
  std::pair<std::uint32_t, std::string> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return !settled_.empty(); })) {
      ADD_FAILURE() << "nothing settled";
      return {~0U, ""};
    }
    const auto first = settled_.front();
    settled_.erase(settled_.begin());
    return first;
  }
  training::Handover next_handover() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return !handovers_.empty(); }));
    return handovers_.empty() ? training::Handover{} : handovers_.front();
  }
  template <class Condition>
  static bool eventually(const Condition& condition) {
    const std::uint64_t end = base::monotonic_ns() + 10'000'000'000;
    while (!condition() && base::monotonic_ns() < end) std::this_thread::sleep_for(milliseconds(1));
    return condition();
  }

  ResidencyOptions options_;
  FakeDevice device_;
  std::atomic<std::uint64_t> held_{0};
  std::vector<std::unique_ptr<FakeWeights>> weights_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::uint32_t, std::string>> settled_;
  std::vector<training::Handover> handovers_;
  std::vector<std::string> lines_;
  FakeTrainer trainer_;
  std::unique_ptr<Residency> residency_;  // last: its thread uses the others
};

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
  EXPECT_TRUE(residency.admit(1));
  EXPECT_TRUE(a.loaded());
  EXPECT_FALSE(b.loaded());
  EXPECT_EQ(residency.counters().resident_bytes, 60 * kMiB);
  EXPECT_EQ(residency.counters().evictions, 2U);
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
  options_.broker.give_up_ns = 20'000'000;
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

TEST_F(ResidencyTest, TrainingGivesItsMemoryToAModel) {
  trainer_.obey_at_once();
  Residency& residency = start(&trainer_);
  add(1, 60);
  evict_idle();
  attach(trainer_);
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_THAT(trainer_.orders(), ElementsAre(training::Order::kDrop));
  // 40 MiB were missing; a page and the slack on top.
  EXPECT_LE(trainer_.memory().held, 40 * kMiB);
  EXPECT_GE(trainer_.memory().held, 38 * kMiB);
  const training::Handover handover = next_handover();
  EXPECT_TRUE(handover.obeyed);
  EXPECT_GE(handover.bytes, 40 * kMiB);
  EXPECT_EQ(residency.counters().handovers, 1U);
  residency.stop();  // it knows the trainer
}

// Prevents: a model waits for memory that nobody was asked for. The trainer held less than its new
// grant when that was decided, so it got no order, and more when the grant came.
TEST_F(ResidencyTest, ATrainerThatGrewMeanwhileIsAsked) {
  trainer_.obey_at_once();
  Residency& residency = start(&trainer_);
  add(1, 60);
  evict_idle();
  trainer_.set({.attached = true,
                .obeys = true,
                .held = 20 * kMiB,
                .grant = 90 * kMiB,
                .base = 10 * kMiB,
                .slope = kMiB});
  trainer_.grow_before_next_grant(80 * kMiB);
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_TRUE(eventually([this] { return !trainer_.orders().empty(); }));
}

TEST_F(ResidencyTest, ATrainerThatDoesNotObeyIsEnded) {
  options_.wedged_ns = 50'000'000;
  Residency& residency = start(&trainer_);
  FakeWeights& a = add(1, 60);
  evict_idle();
  attach(trainer_);
  EXPECT_FALSE(residency.acquire(1, kNever));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(a.loaded());
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_THAT(trainer_.ended(), HasSubstr("--wedged-s"));
  EXPECT_FALSE(next_handover().obeyed);
  residency.stop();  // it knows the trainer
}

// Prevents: every request for memory fails from then on, because the broker waits for memory that
// never comes.
TEST_F(ResidencyTest, ATrainerThatObeysButKeepsItsMemoryIsEnded) {
  options_.wedged_ns = 50'000'000;
  FakeTrainer& trainer = trainer_;
  trainer.obey_at_once();
  trainer.keep(75 * kMiB);
  Residency& residency = start(&trainer);
  add(1, 60);
  evict_idle();
  attach(trainer);
  const std::uint64_t begin = base::monotonic_ns();
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_GE(base::monotonic_ns() - begin, options_.wedged_ns);
  EXPECT_THAT(trainer.ended(), HasSubstr("kept the memory"));
}

TEST(TrainerShare, ATrainerMayKeepALittleOrWhatNobodyNeeds) {
  constexpr std::uint64_t kWedgedNs = 1'000'000;
  constexpr std::uint64_t kLater = 1'000'000'000'000'000'000;
  FakeTrainer trainer;
  trainer.obey_at_once();
  trainer.keep(44 * kMiB);
  trainer.set({.attached = true, .obeys = true, .held = 80 * kMiB});
  TrainerShare share(trainer, kWedgedNs, 4 * kMiB, [](const auto&) {});
  share.apply({.bytes = 40 * kMiB, .order = Decision::Order::kShrink}, 0);
  share.poll(kLater, true);
  EXPECT_EQ(trainer.ended(), "");
  share.apply({.bytes = 40 * kMiB - 1, .order = Decision::Order::kShrink}, 0);
  share.poll(kLater, false);
  EXPECT_EQ(trainer.ended(), "");
  ASSERT_TRUE(share.state());
  EXPECT_EQ(share.state()->owed(), 0U) << "it will not give back more";
  share.poll(kLater, true);
  EXPECT_NE(trainer.ended(), "");
}

// Prevents: a trainer that hangs is waited for as long as models come that want its memory.
TEST(TrainerShare, ALaterOrderGivesAWedgedTrainerNoMoreTime) {
  FakeTrainer trainer;
  trainer.set({.attached = true, .obeys = true, .held = 80 * kMiB});
  constexpr std::uint64_t kWedgedNs = 50'000'000;
  TrainerShare share(trainer, kWedgedNs, 0, [](const auto&) {});
  const std::uint64_t begin = base::monotonic_ns();
  share.apply({.bytes = 40 * kMiB, .order = Decision::Order::kShrink}, 0);
  share.poll(begin + kWedgedNs - 1, true);
  EXPECT_EQ(trainer.ended(), "");
  std::this_thread::sleep_for(milliseconds(20));
  const std::uint64_t before_second = base::monotonic_ns();
  share.apply({.bytes = 20 * kMiB, .order = Decision::Order::kShrink}, 0);
  share.poll(before_second + kWedgedNs - 1, true);
  EXPECT_THAT(trainer.ended(), HasSubstr("in time (--wedged-s)"));
}

TEST_F(ResidencyTest, TrainingGivesItsMemoryToAModelThatIsBeingLoaded) {
  options_.broker.grow_after_ns = 1'000'000;
  FakeTrainer& trainer = trainer_;
  trainer.obey_at_once();
  Residency& residency = start(&trainer);
  FakeWeights& a = add(1, 10);
  EXPECT_TRUE(residency.acquire(1, kNever));
  attach(trainer);
  {
    Residency::Room room(residency);
    // 10 MiB are free, and 30 more are asked for.
    EXPECT_TRUE(room.make(30 * kMiB));
    EXPECT_TRUE(a.loaded()) << "it is in use";
    EXPECT_THAT(trainer.orders(), ElementsAre(training::Order::kDrop));
    EXPECT_LE(trainer.memory().held, 50 * kMiB);
    EXPECT_GE(trainer.memory().held, 48 * kMiB);
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_LE(trainer.memory().grant, 50 * kMiB) << "nobody else is promised the room";
    held_ = 35 * kMiB;  // the model has taken 25
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_LE(trainer.memory().grant, 50 * kMiB);
  }
  EXPECT_TRUE(eventually([&] { return trainer.memory().grant > 60 * kMiB; }));
  EXPECT_LE(trainer.memory().grant, 65 * kMiB);
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
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(cold.loaded());
    EXPECT_GT(residency.counters().short_ns, 0U);
    add(2, 60).on_evict = [this] { held_ = 20 * kMiB; };
  }
  // The second is idle, so it makes room.
  EXPECT_EQ(next(), std::make_pair(1U, std::string()));
  EXPECT_EQ(residency.counters().loading_bytes, 0U);
  EXPECT_EQ(residency.counters().other_bytes, 0U);
}

// Prevents: nobody learns why a model gets no memory while a training that has just started may
// take all of it.
TEST_F(ResidencyTest, ATrainerThatStartsWhileMemoryIsShortIsNamed) {
  options_.broker.patience_ns = kNever / 2;
  FakeTrainer& trainer = trainer_;
  Residency& residency = start(&trainer);
  FakeWeights& cold = add(1, 60);
  evict_idle();
  EXPECT_TRUE(eventually([&] { return !cold.loaded(); }));
  add(2, 60);
  EXPECT_TRUE(residency.acquire(2, kNever));
  const auto lines = [this] {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  };
  trainer.set({.attached = true, .held = 10 * kMiB});
  EXPECT_TRUE(eventually([&] { return trainer.memory().grant == 40 * kMiB; }));
  trainer.set({});
  EXPECT_EQ(lines(), 0U) << "it was limited at once";
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_TRUE(eventually([&] { return residency.counters().short_ns > 0; }));
  trainer.set({.attached = true, .held = 10 * kMiB});
  EXPECT_TRUE(eventually([&] { return lines() == 1; }));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(lines(), 1U) << "once";
  EXPECT_EQ(trainer.memory().grant, training::kNoGrant);
  residency.release(2, false);
  EXPECT_EQ(next(), std::make_pair(1U, std::string()));
  EXPECT_TRUE(eventually([&] { return trainer.memory().grant == 40 * kMiB; }));
}

TEST_F(ResidencyTest, ThereIsNoRoomWithoutMemory) {
  options_.broker.give_up_ns = 20'000'000;
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
  EXPECT_TRUE(room.make(kMiB));
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
