// Prevents: a handover whose parts do not add up, an order that nobody can obey, and a trainer that
// is killed for the order of another one.
#include "server/memory/trainer_share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.hpp"
#include "tests/server/memory/fake_trainer.hpp"

namespace sluice::server::memory {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kMs = 1'000'000;
constexpr Decision::Grant kShrink{.bytes = 40 * kMiB, .order = shm::MemoryOrder::kShrink};
constexpr Decision::Grant kSleep{.bytes = 10 * kMiB, .order = shm::MemoryOrder::kSleep};

class TrainerShareTest : public testing::Test {
 protected:
  TrainerShareTest() { trainer_.set({{.held = 80 * kMiB, .obeys = true}, true, 1}); }
  FakeTrainer trainer_;
  std::vector<training::Handover> handovers_;
  TrainerShare share_{trainer_, 10'000 * kMs, 0,
                      [this](const auto& each) { handovers_.push_back(each); }};
};

// Prevents: an order that took as long as the machine runs, in server-profile.
TEST_F(TrainerShareTest, AHandoverThatNoModelWaitedForBeginsWithItsOrder) {
  trainer_.obey_at_once();
  const std::uint64_t before_ns = base::monotonic_ns();
  share_.apply(kShrink, 0);
  share_.poll(base::monotonic_ns(), true);
  share_.settled();
  ASSERT_EQ(handovers_.size(), 1U);
  EXPECT_GE(handovers_[0].at_ns, before_ns);
  EXPECT_EQ(handovers_[0].order_ns, 0U);
  EXPECT_EQ(handovers_[0].bytes, 40 * kMiB);
}

TEST_F(TrainerShareTest, ItsPartsAreThoseOfTheTrainerAndAddUp) {
  trainer_.obey_at_once();
  trainer_.obeyed_in({2 * kMs, 3 * kMs, 4 * kMs});
  const std::uint64_t now = base::monotonic_ns();
  share_.apply(kShrink, now - 5 * kMs);
  // The memory thread looks a little after the trainer has obeyed.
  share_.poll(base::monotonic_ns() + 10 * kMs, true);
  share_.settled();
  ASSERT_EQ(handovers_.size(), 1U);
  const training::Handover& handover = handovers_[0];
  EXPECT_EQ(handover.at_ns, now - 5 * kMs);
  EXPECT_GE(handover.order_ns, 5 * kMs);
  EXPECT_EQ(handover.obey.drop_ns, 2 * kMs);
  EXPECT_EQ(handover.obey.drain_ns, 3 * kMs);
  EXPECT_GE(handover.obey.give_ns, 5 * kMs) << "until the server knew";
}

// A program that has no work on the GPU does not wait for it.
TEST_F(TrainerShareTest, PartsThatCannotBeToldApartAreOne) {
  trainer_.obey_at_once();
  trainer_.obeyed_in({2 * kMs, 0, 0});
  share_.apply(kShrink, 0);
  share_.poll(base::monotonic_ns() + 10 * kMs, true);
  share_.settled();
  EXPECT_GE(handovers_.at(0).obey.drop_ns, 10 * kMs);
  EXPECT_EQ(handovers_.at(0).obey.give_ns, 0U);
}

TEST_F(TrainerShareTest, ASecondOrderOfAShortageIsPartOfItsHandover) {
  share_.apply(kShrink, 0);
  share_.poll(base::monotonic_ns(), true);
  share_.settled();
  EXPECT_TRUE(handovers_.empty()) << "not obeyed yet";
  trainer_.set({{.held = 60 * kMiB, .obeys = true}, true, 1});
  trainer_.obey_at_once();
  share_.apply(kSleep, 0);
  share_.poll(base::monotonic_ns(), true);
  share_.settled();
  ASSERT_EQ(handovers_.size(), 1U);
  EXPECT_EQ(handovers_[0].bytes, 70 * kMiB) << "all that was given back since the first order";
}

// Prevents: a trainer dies with an order pending, its successor attaches before the memory thread
// looks again, and is ended after --wedged-s because it does not obey an order that it never got.
TEST_F(TrainerShareTest, AnOrderEndsWithItsTrainer) {
  share_.apply(kSleep, 0);
  EXPECT_TRUE(share_.state()->sleeps);
  trainer_.set({{.held = kMiB, .obeys = true}, true, 2});
  const std::uint64_t later = base::monotonic_ns() + 20'000 * kMs;
  share_.poll(later, true);
  EXPECT_EQ(trainer_.ended(), "");
  share_.settled();
  ASSERT_EQ(handovers_.size(), 1U);
  EXPECT_TRUE(handovers_[0].obeyed);
  EXPECT_FALSE(share_.state()->sleeps) << "nobody would resume the new one";
}

// Prevents: inference that is never idle keeps the gate closed, so the trainer cannot end its
// micro-batch and is ended although it would obey.
TEST_F(TrainerShareTest, ATrainerThatMayFinishItsMicroBatchIsNotHeldForEver) {
  trainer_.shrinks_by(shm::MemoryOrder::kShrink);
  share_.apply(kShrink, 0);
  share_.poll(base::monotonic_ns() + 900 * kMs, true);
  EXPECT_EQ(trainer_.let_run_count(), 0) << "requests have the device first";
  share_.poll(base::monotonic_ns() + 1'100 * kMs, true);
  share_.poll(base::monotonic_ns() + 1'200 * kMs, true);
  EXPECT_EQ(trainer_.let_run_count(), 1);
  EXPECT_EQ(trainer_.ended(), "");
}

TEST_F(TrainerShareTest, ATrainerThatDropsIsNotHeldAnyway) {
  share_.apply(kShrink, 0);
  share_.poll(base::monotonic_ns() + 1'100 * kMs, true);
  EXPECT_EQ(trainer_.let_run_count(), 0);
}

TEST(TrainerShare, ATrainerMayKeepALittleOrWhatNobodyNeeds) {
  constexpr std::uint64_t kWedgedNs = 1'000'000;
  constexpr std::uint64_t kLater = 1'000'000'000'000'000'000;
  FakeTrainer trainer;
  trainer.obey_at_once();
  trainer.keep(44 * kMiB);
  trainer.set({{.held = 80 * kMiB, .obeys = true}, true});
  TrainerShare share(trainer, kWedgedNs, 4 * kMiB, [](const auto&) {});
  share.apply({.bytes = 40 * kMiB, .order = shm::MemoryOrder::kShrink}, 0);
  share.poll(kLater, true);
  EXPECT_EQ(trainer.ended(), "");
  share.apply({.bytes = 40 * kMiB - 1, .order = shm::MemoryOrder::kShrink}, 0);
  share.poll(kLater, false);
  EXPECT_EQ(trainer.ended(), "");
  ASSERT_TRUE(share.state());
  EXPECT_EQ(share.state()->owed(), 0U) << "it will not give back more";
  share.poll(kLater, true);
  EXPECT_NE(trainer.ended(), "");
}

// Prevents: a trainer is ended for its parameters. Before its first fit it is told to sleep with a
// grant of nothing.
TEST(TrainerShare, ATrainerThatSleepsBeforeItsFirstFitKeepsItsParameters) {
  constexpr std::uint64_t kWedgedNs = 1'000'000;
  constexpr std::uint64_t kLater = 1'000'000'000'000'000'000;
  constexpr Decision::Grant kSleepWithNothing{.bytes = 0, .order = shm::MemoryOrder::kSleep};
  FakeTrainer trainer;
  trainer.obey_at_once();
  trainer.keep(44 * kMiB);
  trainer.set({{.held = 80 * kMiB, .obeys = true}, true});
  TrainerShare share(trainer, kWedgedNs, 4 * kMiB, [](const auto&) {});
  share.apply(kSleepWithNothing, 0);
  share.poll(kLater, true);
  EXPECT_EQ(trainer.ended(), "");
  ASSERT_TRUE(share.state());
  EXPECT_EQ(share.state()->owed(), 0U);
  // This order is for a trainer that is awake.
  const std::uint64_t before_ns = base::monotonic_ns();
  share.apply({.bytes = 20 * kMiB, .order = shm::MemoryOrder::kShrink}, 0);
  share.poll(before_ns, true);
  EXPECT_EQ(trainer.ended(), "") << "its time begins with this order";
  share.poll(kLater, true);
  EXPECT_THAT(trainer.ended(), HasSubstr("kept the memory"));
}

TEST(TrainerShare, ATrainerThatSleepsAndIgnoresTheOrderIsEndedBeforeItsFirstFitToo) {
  FakeTrainer trainer;
  trainer.set({{.held = 80 * kMiB, .obeys = true}, true});
  TrainerShare share(trainer, 1'000'000, 0, [](const auto&) {});
  share.apply({.bytes = 0, .order = shm::MemoryOrder::kSleep}, 0);
  share.poll(1'000'000'000'000'000'000, true);
  EXPECT_THAT(trainer.ended(), HasSubstr("in time (--wedged-s)"));
}

TEST(TrainerShare, ATrainerWithAFitSleepsWithWhatItHasReported) {
  constexpr std::uint64_t kLater = 1'000'000'000'000'000'000;
  FakeTrainer trainer;
  trainer.obey_at_once();
  trainer.keep(44 * kMiB);
  trainer.set({{.held = 80 * kMiB, .base = 10 * kMiB, .obeys = true}, true});
  TrainerShare share(trainer, 1'000'000, 4 * kMiB, [](const auto&) {});
  share.apply(kSleep, 0);
  share.poll(kLater, true);
  EXPECT_THAT(trainer.ended(), HasSubstr("kept the memory"));
}

// Prevents: a trainer that hangs is waited for as long as models come that want its memory.
TEST(TrainerShare, ALaterOrderGivesAWedgedTrainerNoMoreTime) {
  FakeTrainer trainer;
  trainer.set({{.held = 80 * kMiB, .obeys = true}, true});
  constexpr std::uint64_t kWedgedNs = 50'000'000;
  TrainerShare share(trainer, kWedgedNs, 0, [](const auto&) {});
  const std::uint64_t begin = base::monotonic_ns();
  share.apply({.bytes = 40 * kMiB, .order = shm::MemoryOrder::kShrink}, 0);
  share.poll(begin + kWedgedNs - 1, true);
  EXPECT_EQ(trainer.ended(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::uint64_t before_second = base::monotonic_ns();
  share.apply({.bytes = 20 * kMiB, .order = shm::MemoryOrder::kShrink}, 0);
  share.poll(before_second + kWedgedNs - 1, true);
  EXPECT_THAT(trainer.ended(), HasSubstr("in time (--wedged-s)"));
}

}  // namespace
}  // namespace sluice::server::memory
