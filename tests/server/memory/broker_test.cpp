// The broker hands out memory that nobody else holds, takes it from whom it hurts least, and always
// lets a waiting model in. A mistake would be an out-of-memory error of somebody's program, or a
// request that waits for ever.
#include "server/memory/broker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

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
  state.asleep = 40 * kMiB;
  state.step = 10 * kMiB;
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
              ElementsAre(Decision::Grant{0, (250 - 20 - 64) * kMiB, Decision::Order::kShrink}));
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
              ElementsAre(Decision::Grant{0, (600 - 160 - 64) * kMiB, Decision::Order::kShrink}));
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
              ElementsAre(Decision::Grant{0, (600 - 160 - 64) * kMiB, Decision::Order::kShrink}));
  // It leaves if training has nothing more to give.
  state_.models[2].bytes += 400 * kMiB;
  decision = decided();
  EXPECT_THAT(decision.evict, ElementsAre(1, 2));
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, 100 * kMiB, Decision::Order::kShrink}));
}

TEST_F(BrokerTest, MemoryThatTheTrainerOnlyMayTakeNeedsNoOrder) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(1000)};
  state_.trainers[0].held = 200 * kMiB;
  const Decision decision = decided();
  EXPECT_THAT(decision.grants,
              ElementsAre(Decision::Grant{0, (1000 - 300 - 64) * kMiB, Decision::Order::kNone}));
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
              ElementsAre(Decision::Grant{0, 100 * kMiB, Decision::Order::kShrink}));
  state_.models[1].bytes = 940 * kMiB;
  decision = decided();
  EXPECT_THAT(decision.grants, ElementsAre(Decision::Grant{0, 40 * kMiB, Decision::Order::kSleep}));
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
  state_.trainers[0].grant = kNoGrant;
  EXPECT_THAT(decided().grants, IsEmpty());
}

TEST_F(BrokerTest, TakesFromAnUnmodifiedTrainerOnlyWhatItDoesNotHold) {
  state_.models = {wanted(1, 300)};
  state_.trainers = {trainer(900)};
  state_.trainers[0].obeys = false;
  state_.trainers[0].floor = 0;
  state_.trainers[0].held = 800 * kMiB;
  const Decision decision = decided();
  EXPECT_THAT(decision.grants, ElementsAre(Decision::Grant{0, 800 * kMiB, Decision::Order::kNone}));
  EXPECT_THAT(decision.load, IsEmpty());
}

TEST_F(BrokerTest, ANewTrainerIsGrantedWhatIsFree) {
  state_.models = {resident(1, 300, 999)};
  state_.trainers = {trainer(100)};
  state_.trainers[0].grant = kNoGrant;
  EXPECT_THAT(decided().grants,
              ElementsAre(Decision::Grant{0, 700 * kMiB, Decision::Order::kNone}));
}

TEST_F(BrokerTest, TrainingGrowsOnlyAfterATimeWithoutShortage) {
  state_.models = {resident(1, 100, 999)};
  state_.trainers = {trainer(400)};
  state_.short_ns = kStart - 499 * kMs;
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.now_ns += kMs;
  // 500 MiB are free, in whole pages without the slack.
  EXPECT_THAT(decided().grants,
              ElementsAre(Decision::Grant{0, 820 * kMiB, Decision::Order::kNone}));
  // Not for less than an item.
  state_.trainers[0].step = 437 * kMiB;
  EXPECT_THAT(decided().grants, IsEmpty());
}

// Prevents: a training whose smallest micro-batch needs a little more than its grant waits for ever
// for a step as large as that micro-batch.
TEST_F(BrokerTest, ATrainerThatCannotRunGetsLessThanAnItemToo) {
  state_.trainers = {trainer(800)};
  state_.trainers[0].step = 700 * kMiB;
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.trainers[0].held = 99 * kMiB;
  EXPECT_THAT(decided().grants,
              ElementsAre(Decision::Grant{0, 920 * kMiB, Decision::Order::kNone}));
}

TEST_F(BrokerTest, ASleepingTrainerResumesWhenItCanRun) {
  state_.trainers = {trainer(40)};
  state_.trainers[0].sleeps = true;
  state_.models = {in_use(1, 850, 0)};
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.models = {in_use(1, 800, 0)};
  EXPECT_THAT(decided().grants,
              ElementsAre(Decision::Grant{0, 120 * kMiB, Decision::Order::kResume}));
}

// Prevents: the estimate of what a training needs is a little more than the pool can ever give, and
// the training sleeps for ever.
TEST_F(BrokerTest, ASleepingTrainerTriesWithAllThatThereIs) {
  state_.trainers = {trainer(40)};
  state_.trainers[0].sleeps = true;
  state_.trainers[0].floor = 2000 * kMiB;
  state_.trainers[0].step = 1990 * kMiB;
  state_.models = {in_use(1, 10, 0)};
  EXPECT_THAT(decided().grants, IsEmpty());
  state_.models = {};
  ASSERT_EQ(decided().grants.size(), 1U);
  EXPECT_EQ(decided().grants[0].order, Decision::Order::kResume);
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

/// Models, requests and an obeying trainer in virtual time, driven by the broker.
class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    options_.pool_bytes = below(2000, 1000) * kMiB;
    options_.cold_cache_bytes = below(400) * kMiB;
    options_.give_up_ns = 1000 * kMs;
    state_.now_ns = kStart;
    state_.other_bytes = below(100) * kMiB;
    state_.models.resize(below(12, 3));
    for (std::uint32_t id = 0; id < state_.models.size(); ++id) {
      model(id).id = id;
      model(id).bytes = below(400, 1) * kMiB;
    }
    if (below(4) > 0) {
      TrainerState one = trainer(below(300, 1));
      one.grant = kNoGrant;
      one.obeys = below(5) > 0;
      state_.trainers.push_back(one);
    }
  }

  void step() {
    state_.now_ns += below(20, 1) * kMs / 4;
    for (ModelMemory& model : state_.models) change(model);
    for (TrainerState& one : state_.trainers) change(one);
    const bool is_short = std::ranges::any_of(state_.models, &ModelMemory::wanted);
    if (is_short) state_.short_ns = state_.now_ns;
    apply(decide(options_, state_));
  }

 private:
  std::uint64_t below(std::uint64_t end, std::uint64_t first = 0) {
    return first + random_() % (end - first);
  }
  ModelMemory& model(std::uint32_t id) { return state_.models.at(id); }

  /// Requests come and go.
  void change(ModelMemory& one) {
    if (one.users > 0 && below(3) == 0 && --one.users == 0) one.last_used_ns = state_.now_ns;
    if (below(12) > 0) return;
    if (one.resident && !one.leaving) {
      ++one.users;
    } else if (one.wanted_ns == kNever) {
      one.wanted_ns = state_.now_ns;
      one.deadline_ns = below(2) == 0 ? kNever : state_.now_ns + below(200) * kMs;
    }
  }
  /// It obeys in steps, and takes what it may.
  void change(TrainerState& one) {
    if (one.owed() > 0) {
      one.held -= std::min(one.owed(), below(200) * kMiB);
    } else if (!one.sleeps && below(3) == 0) {
      const std::uint64_t most = std::min(one.grant, options_.pool_bytes - used());
      if (most > one.held) one.held += below(most - one.held + 1);
    }
  }
  /// What is really held.
  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t bytes = state_.other_bytes;
    for (const ModelMemory& one : state_.models) bytes += one.resident ? one.bytes : 0;
    for (const TrainerState& one : state_.trainers) bytes += one.held;
    return bytes;
  }
  /// What may be held without another decision.
  [[nodiscard]] std::uint64_t promised() const {
    std::uint64_t bytes = used();
    for (const TrainerState& one : state_.trainers) bytes += one.claim() - one.held;
    return bytes;
  }

  void apply(const Decision& decision) {
    for (const std::uint32_t id : decision.evict) {
      ASSERT_TRUE(model(id).resident);
      ASSERT_EQ(model(id).users, 0U);
      model(id).resident = model(id).leaving = false;
    }
    const std::uint64_t before = promised();
    std::set<std::size_t> granted;
    for (const Decision::Grant& grant : decision.grants) {
      ASSERT_TRUE(granted.insert(grant.trainer).second);
      apply(grant);
    }
    for (const std::uint32_t id : decision.leave) {
      ASSERT_TRUE(model(id).resident);
      model(id).leaving = true;
    }
    for (const std::uint32_t id : decision.load) {
      ASSERT_FALSE(model(id).resident);
      model(id).resident = true;
      model(id).wanted_ns = model(id).deadline_ns = kNever;
      model(id).users = 1;
      model(id).last_used_ns = state_.now_ns;
    }
    for (const std::uint32_t id : decision.refuse) {
      // All models fit, so only a trainer that does not obey can be the reason.
      ASSERT_TRUE(!state_.trainers.empty() && !state_.trainers[0].obeys);
      model(id).wanted_ns = model(id).deadline_ns = kNever;
    }
    // Nobody is promised what another one holds or may take.
    if (!decision.load.empty() || promised() > before) {
      ASSERT_LE(promised(), options_.pool_bytes);
    }
    for (const ModelMemory& one : state_.models) {
      if (one.wanted()) {
        ASSERT_LE(state_.now_ns - one.wanted_ns, options_.give_up_ns + 20 * kMs);
        ASSERT_NE(decision.wake_ns, kNever);
      }
    }
  }

  void apply(const Decision::Grant& grant) {
    TrainerState& one = state_.trainers.at(grant.trainer);
    using Order = Decision::Order;
    ASSERT_TRUE(one.may_shrink);
    if (!one.obeys) {
      ASSERT_GE(grant.bytes, one.held);
      ASSERT_EQ(grant.order, Order::kNone);
    } else if (grant.order == Order::kSleep) {
      ASSERT_EQ(grant.bytes, one.asleep);
      one.sleeps = true;
    } else if (!one.sleeps || grant.order == Order::kResume) {
      ASSERT_TRUE(grant.bytes >= one.floor || one.grant == kNoGrant);
      if (grant.order == Order::kResume) one.sleeps = false;
    }
    if (grant.order == Order::kShrink) {
      const bool urgent = std::ranges::any_of(state_.models, [&](const ModelMemory& each) {
        return each.wanted() && each.deadline_ns < one.shrunk_ns + options_.shrink_gap_ns;
      });
      ASSERT_TRUE(urgent || one.shrunk_ns == 0 ||
                  state_.now_ns - one.shrunk_ns >= options_.shrink_gap_ns);
      one.shrunk_ns = state_.now_ns;
    }
    const bool grew = one.grant != kNoGrant && grant.bytes > one.grant;
    if (grew && state_.short_ns != 0) {
      ASSERT_GE(state_.now_ns - state_.short_ns, options_.grow_after_ns);
    }
    one.grant = grant.bytes;
  }

  std::mt19937 random_;
  BrokerOptions options_;
  MemoryState state_;
};

TEST(BrokerProperties, HoldInRandomWorlds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    World world(seed);
    for (int i = 0; i < 1500; ++i) {
      world.step();
      if (testing::Test::HasFatalFailure()) {
        FAIL() << "seed " << seed << " step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::server::memory
