// Models that come get memory from a trainer, whatever the trainer does.
#include "residency_test.hpp"

namespace sluice::server::memory {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ResidencyTest, TrainingGivesItsMemoryToAModel) {
  trainer_.obey_at_once();
  Residency& residency = start(&trainer_);
  add(1, 60);
  evict_idle();
  attach(trainer_);
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_THAT(trainer_.orders(), ElementsAre(shm::MemoryOrder::kDrop));
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
  trainer_.set(
      {{.held = 20 * kMiB, .grant = 90 * kMiB, .base = 10 * kMiB, .slope = kMiB, .obeys = true},
       true});
  trainer_.grow_before_next_grant(80 * kMiB);
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_TRUE(eventually([this] { return !trainer_.orders().empty(); }));
}

TEST_F(ResidencyTest, ATrainerThatDoesNotObeyIsEnded) {
  options_.wedged_ns = 50'000'000;
  Residency& residency = start(&trainer_);
  add(1, 60);
  evict_idle();
  attach(trainer_);
  const std::uint64_t begin = base::monotonic_ns();
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_GE(base::monotonic_ns() - begin, options_.wedged_ns);
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

// Prevents: a training that holds more than it was asked to, of which nobody is short, is ended by
// the next model that is loaded.
TEST_F(ResidencyTest, ATrainerMayKeepWhatNoModelWaitsFor) {
  options_.wedged_ns = 50'000'000;
  trainer_.obey_at_once();
  trainer_.keep(30 * kMiB);
  Residency& residency = start(&trainer_);
  add(1, 60);
  add(2, 5);
  evict_idle();
  // It cannot shrink, so it sleeps, and holds more then than it has reported.
  trainer_.set({{.held = 80 * kMiB,
                 .grant = 80 * kMiB,
                 .base = 10 * kMiB,
                 .slope = 75 * kMiB,
                 .obeys = true},
                true});
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(1));
  EXPECT_THAT(trainer_.orders(), ElementsAre(shm::MemoryOrder::kSleep));
  std::this_thread::sleep_for(milliseconds(80));
  EXPECT_FALSE(residency.acquire(2, kNever)) << "a load, for which there is memory";
  EXPECT_EQ(next().second, "");
  EXPECT_TRUE(residency.admit(2));
  EXPECT_EQ(trainer_.ended(), "");
}

// Prevents: a load waits 10 s for more than a training can give.
TEST_F(ResidencyTest, ALoadGetsAllThatATrainingCanGiveAtOnce) {
  trainer_.obey_at_once();
  Residency& residency = start(&trainer_);
  attach(trainer_);
  Residency::Room room(residency);
  EXPECT_TRUE(room.make(75 * kMiB))
      << "next to the free 20 MiB that is more than there is: it keeps 10";
  EXPECT_LE(trainer_.memory().held, 25 * kMiB);
}

// Prevents: a model leaves as soon as it has been loaded, because its room still counts.
TEST_F(ResidencyTest, AModelStaysWhenItsLoadHasMadeRoom) {
  trainer_.obey_at_once();
  Residency& residency = start(&trainer_);
  attach(trainer_);
  Residency::Room room(residency);
  EXPECT_TRUE(room.make(60 * kMiB));
  add(1, 50);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(residency.resident(1));
  EXPECT_EQ(residency.counters().evictions, 0U);
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
    EXPECT_THAT(trainer.orders(), ElementsAre(shm::MemoryOrder::kDrop));
    // The grant may have grown by the 10 before.
    const std::uint64_t left = trainer.memory().held;
    EXPECT_LE(left, 60 * kMiB);
    EXPECT_GE(left, 48 * kMiB);
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_LE(trainer.memory().grant, left) << "nobody else is promised the room";
    held_ = 35 * kMiB;  // the model has taken 25
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_LE(trainer.memory().grant, left);
  }
  EXPECT_TRUE(eventually([&] { return trainer.memory().grant > 60 * kMiB; }));
  EXPECT_LE(trainer.memory().grant, 65 * kMiB);
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
  trainer.set({{.held = 10 * kMiB}, true});
  EXPECT_TRUE(eventually([&] { return trainer.memory().grant == 40 * kMiB; }));
  trainer.set({});
  EXPECT_EQ(lines(), 0U) << "it was limited at once";
  EXPECT_FALSE(residency.acquire(1, kNever));
  EXPECT_TRUE(eventually([&] { return residency.counters().short_ns > 0; }));
  trainer.set({{.held = 10 * kMiB}, true});
  EXPECT_TRUE(eventually([&] { return lines() == 1; }));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(lines(), 1U) << "once";
  EXPECT_EQ(trainer.memory().grant, shm::kNoLimit);
  residency.release(2, false);
  EXPECT_EQ(next(), std::make_pair(1U, std::string()));
  EXPECT_TRUE(eventually([&] { return trainer.memory().grant == 40 * kMiB; }));
}

}  // namespace
}  // namespace sluice::server::memory
