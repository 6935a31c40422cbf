// The broker hands out memory that nobody else holds, takes it from whom it hurts least, and always
// lets a waiting model in. A mistake would be an out-of-memory error of somebody's program, or a
// request that waits indefinitely.
#include "server/memory/broker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server::memory {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kStart = 1000 * kMs;

ModelMemory resident(std::uint32_t id, std::uint64_t mib, std::uint64_t last_used_ms) {
  ModelMemory model;
  model.id = id;
  model.bytes = mib * kMiB;
  model.resident = true;
  model.last_used_ns = last_used_ms * kMs;
  return model;
}

ModelMemory in_use(std::uint32_t id, std::uint64_t mib, std::uint64_t last_used_ms) {
  ModelMemory model = resident(id, mib, last_used_ms);
  model.users = 1;
  return model;
}

ModelMemory wanted(std::uint32_t id, std::uint64_t mib, std::uint64_t deadline_ns = kNever) {
  ModelMemory model;
  model.id = id;
  model.bytes = mib * kMiB;
  model.wanted_ns = kStart;
  model.deadline_ns = deadline_ns;
  return model;
}

/// Holds all that it was granted; 100 MiB at least, and 40 MiB asleep.
TrainerState trainer(std::uint64_t mib) {
  TrainerState state;
  state.held = state.grant = mib * kMiB;
  state.floor = 100 * kMiB;
  state.base = 40 * kMiB;
  state.slope = 10 * kMiB;
  state.may_shrink = state.obeys = true;
  return state;
}

class BrokerTest : public testing::Test {
 protected:
  BrokerTest() {
    options_.pool_bytes = 1000 * kMiB;
    state_.now_ns = kStart;
  }
  Decision decided() { return decide(options_, state_); }

  BrokerOptions options_;
  MemoryState state_;
};

TEST_F(BrokerTest, LoadsIntoFreeMemory) {
  state_.models = {wanted(1, 300), wanted(2, 600)};
  state_.other_bytes = 100 * kMiB;
  EXPECT_THAT(decided().load, ElementsAre(1, 2));
  state_.other_bytes += 1;
  EXPECT_THAT(decided().load, ElementsAre(1));
}

TEST_F(BrokerTest, TheEarliestDeadlineIsFirstAndIsNotOvertaken) {
  state_.models = {in_use(9, 600, 0), wanted(1, 300), wanted(2, 300, kStart + 5 * kMs)};
  EXPECT_THAT(decided().load, ElementsAre(2));
  // Without a deadline a model has its turn all the same.
  state_.models[2].deadline_ns = kStart + 150 * kMs;
  EXPECT_THAT(decided().load, ElementsAre(1));
  // The small model would fit, but would take what the large one waits for.
  state_.models = {in_use(9, 600, 0), wanted(1, 100), wanted(2, 500, kStart + 5 * kMs)};
  EXPECT_THAT(decided().load, IsEmpty());
}

TEST_F(BrokerTest, EvictsTheLeastRecentlyUsedIdleModels) {
  state_.models = {resident(1, 300, 30), resident(2, 300, 10), in_use(3, 200, 0), wanted(4, 250)};
  Decision decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(2));
  EXPECT_THAT(decision.load, ElementsAre(4));
  state_.models.push_back(wanted(5, 260));
  decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(2, 1));
  EXPECT_THAT(decision.load, ElementsAre(4, 5));
}

TEST_F(BrokerTest, AnOverdrawnPoolIsPaidBack) {
  options_.cold_cache_bytes = 1000 * kMiB;
  state_.models = {resident(1, 300, 999), resident(2, 300, 998), in_use(3, 100, 0)};
  state_.trainers = {trainer(250)};
  state_.other_bytes = 60 * kMiB;
  const Decision decision = decided();
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, (250 - 20 - 64) * kMiB, shm::MemoryOrder::kShrink}));
  state_.trainers.clear();
  state_.other_bytes = 400 * kMiB;
  EXPECT_THAT(decided().evict, ElementsAre(2));
}

TEST_F(BrokerTest, TrainingShrinksBeforeTheColdCacheIsUsed) {
  options_.cold_cache_bytes = 300 * kMiB;
  options_.max_idle_ns = 500 * kMs;
  state_.models = {resident(1, 200, 10), resident(2, 200, 20), wanted(3, 350)};
  state_.trainers = {trainer(600)};
  const Decision decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(1));
  // 150 MiB are missing: in whole pages and with slack.
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, (600 - 160 - 64) * kMiB, shm::MemoryOrder::kShrink}));
  EXPECT_THAT(decision.load, IsEmpty());
}

// Models that are used again and again would otherwise push each other out, next to a training that
// keeps half of the memory.
TEST_F(BrokerTest, TrainingShrinksBeforeAModelThatWasJustUsedLeaves) {
  options_.max_idle_ns = 500 * kMs;
  state_.models = {resident(1, 200, 499), resident(2, 200, 501), wanted(3, 350)};
  state_.trainers = {trainer(600)};
  Decision decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(1));
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, (600 - 160 - 64) * kMiB, shm::MemoryOrder::kShrink}));
  // It leaves if training has nothing more to give.
  state_.models[2].bytes += 400 * kMiB;
  decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(1, 2));
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, 100 * kMiB, shm::MemoryOrder::kShrink}));
}

TEST_F(BrokerTest, MemoryThatTheTrainerOnlyMayTakeNeedsNoOrder) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(1000)};
  state_.trainers[0].held = 200 * kMiB;
  const Decision decision = decided();
  EXPECT_THAT(decision.grants, ElementsAre(Decision::Grant{0, (1000 - 300 - 64) * kMiB}));
  EXPECT_THAT(decision.load, ElementsAre(1));
}

TEST_F(BrokerTest, BelowItsSmallestMicroBatchTheTrainerSleeps) {
  options_.cold_cache_bytes = 100 * kMiB;
  state_.models = {resident(1, 100, 10), wanted(2, 850)};
  state_.trainers = {trainer(900)};
  Decision decision = decided();
  // The idle model is cheaper than a sleeping trainer.
  EXPECT_THAT(decision.evict, ElementsAre(1));
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, 100 * kMiB, shm::MemoryOrder::kShrink}));
  state_.models[1].bytes = 940 * kMiB;
  decision = decided();
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, 40 * kMiB, shm::MemoryOrder::kSleep}));
}

TEST_F(BrokerTest, WaitsForWhatIsOwed) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(1000)};
  state_.trainers[0].grant = 600 * kMiB;
  state_.trainers[0].shrunk_ns = kStart;
  Decision decision = decided();
  EXPECT_THAT(decision.grants, IsEmpty());
  EXPECT_THAT(decision.load, IsEmpty());
  EXPECT_LE(decision.wake_ns, kStart + kMs);
  state_.trainers[0].held = 700 * kMiB;
  EXPECT_THAT(decided().load, ElementsAre(1));
}

// Prevents: a trainer that has obeyed, but holds a little more than its grant, starves a model.
TEST_F(BrokerTest, DoesNotWaitForWhatATrainerKeeps) {
  state_.models = {resident(1, 50, 10), wanted(2, 120)};
  state_.trainers = {trainer(850)};
  state_.trainers[0].grant = 100 * kMiB;
  EXPECT_THAT(decided().evict, IsEmpty());
  state_.trainers[0].keeps = 750 * kMiB;
  const Decision decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(1));
  EXPECT_THAT(decision.load, ElementsAre(2));
}

TEST_F(BrokerTest, DoesNotShrinkAgainAtOnceUnlessADeadlineNeedsIt) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(900)};
  state_.trainers[0].shrunk_ns = kStart - 20 * kMs;
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.models[0].deadline_ns = kStart + 10 * kMs;
  EXPECT_EQ(decided().grants.size(), 1U);
  state_.models[0].deadline_ns = kNever;
  state_.now_ns += 30 * kMs;
  EXPECT_EQ(decided().grants.size(), 1U);
}

TEST_F(BrokerTest, LeavesTrainersAloneThatModesDecideOn) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(900)};
  state_.trainers[0].may_shrink = false;
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.models.clear();
  state_.trainers[0].held = 100 * kMiB;
  state_.trainers[0].grant = shm::kNoLimit;
  EXPECT_THAT(decided().grants, IsEmpty());
}

TEST_F(BrokerTest, TakesFromAnUnmodifiedTrainerOnlyWhatItDoesNotHold) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(900)};
  state_.trainers[0].obeys = false;
  state_.trainers[0].floor = 0;
  state_.trainers[0].held = 800 * kMiB;
  const Decision decision = decided();
  EXPECT_THAT(decision.grants, ElementsAre(Decision::Grant{0, 800 * kMiB}));
  EXPECT_THAT(decision.load, IsEmpty());
}

TEST_F(BrokerTest, ANewTrainerIsGrantedWhatIsFree) {
  state_.models = {resident(1, 300, 999)};
  state_.trainers = {trainer(100)};
  state_.trainers[0].grant = shm::kNoLimit;
  EXPECT_THAT(decided().grants, ElementsAre(Decision::Grant{0, 700 * kMiB}));
}

TEST_F(BrokerTest, TrainingGrowsOnlyAfterATimeWithoutShortage) {
  state_.models = {resident(1, 100, 999)};
  state_.trainers = {trainer(400)};
  state_.short_ns = kStart - 499 * kMs;
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.now_ns += kMs;
  // 500 MiB are free, in whole pages without the slack.
  EXPECT_THAT(decided().grants, ElementsAre(Decision::Grant{0, 820 * kMiB}));
  // Not for less than an item.
  state_.trainers[0].slope = 437 * kMiB;
  EXPECT_THAT(decided().grants, IsEmpty());
}

// Prevents: a training whose smallest micro-batch needs a little more than its grant waits
// indefinitely for a step as large as that micro-batch.
TEST_F(BrokerTest, ATrainerThatCannotRunGetsLessThanAnItemToo) {
  state_.trainers = {trainer(800)};
  state_.trainers[0].slope = 700 * kMiB;
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.trainers[0].held = 99 * kMiB;
  EXPECT_THAT(decided().grants, ElementsAre(Decision::Grant{0, 920 * kMiB}));
}

TEST_F(BrokerTest, ASleepingTrainerResumesWhenItCanRun) {
  state_.trainers = {trainer(40)};
  state_.trainers[0].sleeps = true;
  state_.models = {in_use(1, 850, 0)};
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.models = {in_use(1, 800, 0)};
  EXPECT_THAT(decided().grants,
              ElementsAre(Decision::Grant{0, 120 * kMiB, shm::MemoryOrder::kNone, true}));
}

// Prevents: the estimate of what a training needs is a little more than the pool can ever give, and
// the training sleeps indefinitely.
TEST_F(BrokerTest, ASleepingTrainerTriesWithAllThatThereIs) {
  state_.trainers = {trainer(40)};
  state_.trainers[0].sleeps = true;
  state_.trainers[0].floor = 2000 * kMiB;
  state_.trainers[0].slope = 1990 * kMiB;
  state_.models = {in_use(1, 10, 0)};
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.models = {};
  ASSERT_EQ(decided().grants.size(), 1U);
  EXPECT_TRUE(decided().grants[0].wakes);
}

TEST_F(BrokerTest, IdleModelsLeaveBeyondTheColdCache) {
  options_.cold_cache_bytes = 100 * kMiB;
  state_.now_ns = 4000 * kMs;
  state_.models = {resident(1, 60, 1000), resident(2, 60, 500), in_use(3, 60, 0),
                   resident(4, 60, 1001)};
  const Decision decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(2, 1));
  state_.models = {resident(4, 60, 1001), resident(5, 60, 1002)};
  EXPECT_THAT(decided().evict, IsEmpty());
  EXPECT_EQ(decided().wake_ns, 4001 * kMs);
  options_.max_idle_ns = 0;
  EXPECT_EQ(decided().wake_ns, kNever);
}

TEST_F(BrokerTest, ModelsInUseMakeRoomForOneThatHasWaited) {
  state_.models = {in_use(1, 500, 10), in_use(2, 400, 5), wanted(3, 300)};
  EXPECT_THAT(decided().leave, IsEmpty());
  EXPECT_EQ(decided().wake_ns, kStart + options_.patience_ns);
  state_.now_ns += options_.patience_ns;
  EXPECT_THAT(decided().leave, ElementsAre(2));
  state_.models[1].leaving = true;
  EXPECT_THAT(decided().leave, IsEmpty());
  EXPECT_THAT(decided().evict, IsEmpty());
  state_.models[1].users = 0;
  EXPECT_THAT(decided().evict, ElementsAre(2));
  EXPECT_THAT(decided().load, ElementsAre(3));
}

// Prevents: on a busy machine, models send each other away before any of their batches has begun.
TEST_F(BrokerTest, AModelThatHasComeInRunsWhatWaitedForItFirst) {
  ModelMemory has_come = resident(1, 800, 0);
  has_come.wanted_ns = kStart;
  state_.models = {has_come, wanted(2, 300)};
  state_.now_ns += options_.patience_ns;
  EXPECT_THAT(decided().leave, IsEmpty());
  state_.models[0].wanted_ns = kNever;
  state_.models[0].users = 1;
  EXPECT_THAT(decided().leave, ElementsAre(1));
}

TEST_F(BrokerTest, RefusesWhatCannotFitAndWhatHasWaitedTooLong) {
  state_.other_bytes = 100 * kMiB;
  state_.models = {wanted(1, 901), wanted(2, 900), in_use(3, 10, 0)};
  EXPECT_THAT(decided().refuse, ElementsAre(1));
  state_.now_ns += options_.give_up_ns;
  EXPECT_THAT(decided().refuse, ElementsAre(1, 2));
}

}  // namespace
}  // namespace sluice::server::memory
