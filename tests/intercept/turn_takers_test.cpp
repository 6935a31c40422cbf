// Who takes turns at all.
#include "tests/intercept/turns.hpp"

namespace sluice::intercept::test {
namespace {

TEST_F(Turns, WithoutAWeightNobodyTakesThem) {
  const int a = add(0);
  const int b = add(0);
  run(200);
  EXPECT_EQ(slot(a).turn.takes.load() + slot(b).turn.takes.load(), 0U);
  EXPECT_NEAR(served_ms(a), 100, 1);
  EXPECT_EQ(slot(a).gate.load(), 0U);
}

/// Clients below a critical one that would have short slices if they were fewer.
class TurnsWithoutWeights : public Turns {
 protected:
  int add_busy(int priority = 0) {
    const int index = add(0, priority);
    shm::Slot& client = slot(index);
    client.policy.store(shm::Policy{shm::PolicyKind::kDevice, {}, 0}.pack());
    client.slice_state.store(static_cast<std::uint32_t>(shm::SliceState::kSeveral));
    client.gpu_share.store(800);
    client.turn.covered.store(980);
    client.busy_ns.store(now_);
    return index;
  }
  void SetUp() override {
    Turns::SetUp();
    above_ = add(0, 7);
    slot(above_).busy_ns.store(now_);
  }
  [[nodiscard]] int how_many() const {
    int should = 0;
    for (int i = 0; i < count_; ++i) should += should_take_turns(*board_, i, now_);
    return should;
  }
  int above_ = 0;
};

// Prevents: turns for the rest of the day after the critical program's last request.
TEST_F(TurnsWithoutWeights, WhereNothingAboveIsBusyThereAreNone) {
  add_busy();
  add_busy();
  EXPECT_EQ(how_many(), 2);
  slot(above_).job.store(2);
  slot(above_).busy_ns.store(now_ - 9'000 * kMs);
  EXPECT_EQ(how_many(), 2);
  slot(above_).busy_ns.store(now_ - 11'000 * kMs);
  EXPECT_EQ(how_many(), 0);
}

// Prevents: two take turns, and a third one that does not fit runs in all of them.
TEST_F(TurnsWithoutWeights, ANewcomerMustBeAsBusyAsAnybodyWhoBegins) {
  for (const int i : {add_busy(), add_busy()}) slot(i).turn.takes.store(1);
  EXPECT_EQ(how_many(), 2);
  slot(add_busy()).turn.covered.store(850);
  EXPECT_EQ(how_many(), 0);
}

TEST_F(TurnsWithoutWeights, ThoseThatKeepTheGpuBusyTakeTurns) {
  const int a = add_busy();
  EXPECT_EQ(how_many(), 0);
  add_busy();
  EXPECT_EQ(how_many(), 2);
  slot(a).slice_state.store(static_cast<std::uint32_t>(shm::SliceState::kShort));
  EXPECT_EQ(how_many(), 2) << "turns go on when slices are short";
}

// Prevents: two programs whose short slices leave each other a hundredth of the GPU, next to a busy
// critical program, and which count as idle for that reason, so that no turns begin.
TEST_F(TurnsWithoutWeights, ThoseThatAlwaysHaveWorkTakeTurnsHoweverLittleTheyGet) {
  for (const int i : {add_busy(), add_busy()}) slot(i).busy_ns.store(0);
  EXPECT_EQ(how_many(), 2);
}

// Prevents: programs that leave the GPU idle have less than without turns.
TEST_F(TurnsWithoutWeights, WhereOneLeavesTheGpuIdleThereAreNone) {
  const int a = add_busy();
  add_busy();
  slot(a).gpu_share.store(600);
  EXPECT_EQ(how_many(), 0) << "its host is slow";
  slot(a).gpu_share.store(800);
  slot(a).turn.covered.store(800);
  EXPECT_EQ(how_many(), 0) << "it pauses";
  for (const int i : {a, a + 1}) slot(i).turn.takes.store(1);
  EXPECT_EQ(how_many(), 2) << "a little less does not end them";
  slot(a).turn.covered.store(700);
  EXPECT_EQ(how_many(), 0);
}

TEST_F(TurnsWithoutWeights, ThoseThatDoNotTakePartEndThem) {
  const int a = add_busy();
  const int b = add_busy();
  slot(a).policy.store(shm::Policy{shm::PolicyKind::kGate, {}, 0}.pack());
  EXPECT_EQ(how_many(), 0) << "its gate stops nothing";
  slot(a).policy.store(slot(b).policy.load());
  slot(a).reader.store(1);
  EXPECT_EQ(how_many(), 0);
  slot(a).reader.store(0);
  slot(a).turn.connected.store(1);
  EXPECT_EQ(how_many(), 0) << "it may wait for work elsewhere";
  slot(a).turn.connected.store(0);
  const int c = add_busy();
  slot(c).slice_state.store(static_cast<std::uint32_t>(shm::SliceState::kHostBound));
  EXPECT_EQ(how_many(), 0) << "short slices are not right for it";
  slot(c).busy_ns.store(0);
  EXPECT_EQ(how_many(), 2) << "it does nothing";
}

// Prevents: turns that bring nothing, because one of a third priority is busy too.
TEST_F(TurnsWithoutWeights, OfTwoPrioritiesNobodyTakesThem) {
  add_busy(1);
  add_busy(1);
  const int low = add_busy(0);
  EXPECT_EQ(how_many(), 0);
  slot(low).busy_ns.store(0);
  slot(low).turn.covered.store(0);
  EXPECT_EQ(how_many(), 2) << "it has no work";
}

TEST_F(Turns, ForOneThatIsAloneThereAreNone) {
  const int a = add(7);
  const int above = add(3, 5);
  run(100);
  EXPECT_EQ(slot(a).turn.takes.load(), 0U);
  EXPECT_EQ(slot(above).turn.takes.load(), 0U);
  const int b = add(0);
  run(200);
  EXPECT_NE(slot(b).turn.takes.load() & kTakes, 0U) << "one of the two has a weight";
  die(b);
  run(100);
  EXPECT_EQ(slot(a).turn.takes.load(), 0U);
  EXPECT_EQ(slot(a).gate.load() & shm::bit(a), 0U);
}

TEST_F(Turns, ThoseOfAnotherDeviceAndReadersTakeNone) {
  const int a = add(1);
  const int there = add(1);
  const int reader = add(1);
  slot(there).info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 1, 1}.pack());
  slot(reader).reader.store(1);
  run(100);
  EXPECT_EQ(slot(a).turn.takes.load() + slot(there).turn.takes.load(), 0U);
  EXPECT_EQ(slot(reader).turn.takes.load(), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
