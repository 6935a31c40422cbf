// What a target calls "alone" was alone: on a board in this process, in virtual time. Prevents: the
// time alone is learned from steps that felt a neighbour.
#include "intercept/slot/quiet.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "intercept/jobs/step_law.hpp"
#include "shm/outside_word.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "tests/support/board_test.hpp"

namespace sluice::intercept::test {
namespace {

using sluice::test::kMs;

constexpr int kServer = 1;
constexpr int kOther = 2;
constexpr std::uint64_t kJob = 7;

class Alone : public sluice::test::BoardTest {
 protected:
  void SetUp() override { add_client(kServer, 5, "serve"); }
  shm::Slot& add_other(std::uint8_t priority, const shm::Policy& policy = shm::kDefaultPolicy) {
    shm::Slot& other = add_client(kOther, priority, "other");
    other.policy.store(policy.pack());
    return other;
  }
  /// Its work is on the GPU until it waits for that.
  static void launches(shm::Slot& other) {
    other.entries[0][shm::Count::kGated].fetch_add(1);
    if (!shm::is_active(other.job.load())) other.job.fetch_add(1);
  }
  static void waits(shm::Slot& other) {
    if (shm::is_active(other.job.load())) other.job.fetch_add(1);
  }
  void closes(shm::Slot& other) {
    other.gate.store(shm::bit(kServer));
    other.closed_since_ns.store(now_);
  }
  static void opens(shm::Slot& other) {
    other.gate.store(0);
    other.closed_since_ns.store(0);
  }
  /// A step of so many ms, in whose middle something happens.
  bool step(
      std::uint64_t ms = 10, const std::function<void()>& happens = [] {}) {
    quiet_.begin(*board_, kServer, now_);
    now_ += ms * kMs / 2;
    happens();
    now_ += ms * kMs / 2;
    return quiet_.end(*board_, kServer, now_);
  }

  Quiet quiet_;
  std::uint64_t now_ = sluice::test::kNow;
};

TEST_F(Alone, IsAClientWithoutNeighbours) {
  EXPECT_TRUE(step());
  shm::Slot& gone = add_other(0);
  launches(gone);
  gone.info.store(shm::SlotInfo{shm::SlotState::kDead, 0, 0, 1}.pack());
  EXPECT_TRUE(step());
  shm::Slot& elsewhere = add_other(0);
  elsewhere.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 3, 1}.pack());
  launches(elsewhere);
  EXPECT_TRUE(step()) << "on another GPU";
}

TEST_F(Alone, IsNobodyNextToAnyPriority) {
  for (const std::uint8_t priority : {0, 5, 9}) {
    SCOPED_TRACE(int(priority));
    shm::Slot& other = add_other(priority);
    EXPECT_TRUE(step()) << "it is idle";
    EXPECT_FALSE(step(10, [&] { launches(other); }));
    EXPECT_FALSE(step()) << "it still runs";
    EXPECT_FALSE(step(10, [&] { waits(other); })) << "it ran";
    EXPECT_TRUE(step());
    EXPECT_FALSE(step(10, [&] {
      launches(other);
      waits(other);
    })) << "it is over by the end";
    EXPECT_FALSE(step(10, [&] { other.entries[3][shm::Count::kBypassPolicyNone].fetch_add(1); }));
    EXPECT_FALSE(step(10, [&] { other.open_job.fetch_add(2); })) << "a job without a launch";
    other.info.store(0);
  }
}

TEST_F(Alone, IsAClientWhoseNeighboursHaveComeToTheirGates) {
  shm::Slot& other = add_other(0);
  launches(other);
  EXPECT_FALSE(step());
  closes(other);
  EXPECT_FALSE(step());
  now_ += std::uint64_t(Quiet::kDrainNs);
  EXPECT_TRUE(step());
  EXPECT_TRUE(step(10, [&] { launches(other); })) << "that waits behind the gate";
  EXPECT_FALSE(step(10, [&] {
    opens(other);
    closes(other);
  })) << "a window";
  now_ += std::uint64_t(Quiet::kDrainNs);
  other.longest_launch_ns.store(40 * kMs);
  EXPECT_FALSE(step()) << "its kernels are long";
  now_ += 200 * kMs;
  EXPECT_TRUE(step());
}

TEST_F(Alone, IsNobodyNextToAQueueThatNoGateStops) {
  shm::Slot& other = add_other(0, *shm::parse_policy("gate"));
  launches(other);
  closes(other);
  now_ += 900 * kMs;
  EXPECT_FALSE(step());
  now_ += 200 * kMs;
  EXPECT_TRUE(step());
  other.policy.store(shm::Policy{}.pack());
  ASSERT_EQ(shm::Policy::unpack(other.policy.load()).kind, shm::PolicyKind::kNone);
  EXPECT_FALSE(step()) << "it does not heed its gate";
}

// A client of priority 0 that asks again and again whether its work is done leaves its job open.
TEST_F(Alone, IsAClientNextToAnIdleOne) {
  shm::Slot& other = add_other(0);
  launches(other);
  EXPECT_FALSE(step());
  now_ += Quiet::kIdleNs;
  EXPECT_TRUE(step());
  EXPECT_FALSE(step(10, [&] { launches(other); }));
}

TEST_F(Alone, IsNobodyNextToProgramsOutside) {
  EXPECT_FALSE(Quiet::outside(*board_, kServer));
  board_->devices[0].outside.store(shm::OutsideWord{0, 1}.pack());
  EXPECT_TRUE(Quiet::outside(*board_, kServer));
  EXPECT_FALSE(step());
  board_->devices[0].outside.store(0);
  EXPECT_TRUE(step());
}

/// A server that is never idle, and the law that gives windows to those below. Everything is drawn
/// from a seed.
class TimeAlone : public Alone {
 protected:
  struct World {
    double step = 7;  ///< ms
    double noise = 0.02;
    double outlasts = 0;  ///< What runs below does so for so long behind its window, in ms.
    double equal = 0;     ///< Part of the time in which a neighbour of equal priority runs.
    double outside = 0;   ///< The same, of a program outside, or of another session.
    double slower = 2;    ///< So many times as long do steps take next to somebody.
  };

  void run(const World& world, std::uint64_t seed, double seconds) {
    random_.seed(seed);
    equal_ = outside_ = false;
    equal_until_ = outside_until_ = looked_ = runs_until_ = 0;
    window_ = 0;
    const std::uint64_t end = now_ + std::uint64_t(seconds * 1e9);
    while (now_ < end) one_step(world);
  }
  /// The percentile that the same steps have alone.
  static double alone(const World& world) { return world.step * std::exp(2.33 * world.noise); }
  StepLaw law_;

 private:
  double uniform() { return uniform_(random_); }
  /// Whoever runs for a part of the time does so for so many seconds at a time, or more.
  void toggle(bool& runs, std::uint64_t& until, double part, double least) {
    if (part == 0 || now_ < until) return;
    runs = uniform() < part;
    until = now_ + std::uint64_t((least + 4 * uniform()) * 1e9);
  }

  void one_step(const World& world) {
    shm::Slot& below = slot(kOther);
    shm::Slot& peer = slot(kOther + 1);
    toggle(equal_, equal_until_, world.equal, 0.05);
    toggle(outside_, outside_until_, world.outside, 2.1);
    if (now_ >= looked_ + 2'000'000'000) {  // as the controller does, which sees no shorter ones
      looked_ = now_;
      board_->devices[0].outside.store(outside_ ? shm::OutsideWord{1, 0}.pack() : 0);
    }
    const double window = window_;
    double ms = world.step * std::exp(world.noise * normal_(random_));
    if (window != 0) {
      ms += window;
      runs_until_ = now_ + std::uint64_t((window + world.outlasts * (0.5 + uniform() / 2)) * 1e6);
    }
    // What somebody takes, he takes from the step.
    const bool felt = equal_ || outside_ || now_ < runs_until_;
    const double left = now_ < runs_until_ ? double(runs_until_ - now_) / 1e6 - window : 0;
    if (felt) ms += equal_ || outside_ ? ms * (world.slower - 1) : std::min(left, ms);
    const std::uint64_t ends = now_ + std::uint64_t(ms * 1e6);
    if (equal_) launches(peer);
    if (window != 0) {
      launches(below);
      opens(below);
      now_ += std::uint64_t(window * 1e6);
      closes(below);
    }
    now_ = std::max(now_, ends);
    if (equal_ && uniform() < 0.5) waits(peer);
    if (!equal_) waits(peer);
    if (Quiet::outside(*board_, kServer)) law_.somebody_outside(now_);
    const bool is_alone = quiet_.end(*board_, kServer, now_);
    const auto kind = law_.kind_of(kJob, 30);
    law_.ended(kind, std::uint64_t(ms * 1e6), std::uint64_t(window * 1e6), std::uint64_t(ms * 9e5),
               is_alone, now_);
    window_ = law_.is_usual(kind) ? double(law_.window_ns()) / 1e6 : 0;
  }

  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::normal_distribution<double> normal_;
  double window_ = 0;
  std::uint64_t runs_until_ = 0;
  bool equal_ = false;
  bool outside_ = false;
  std::uint64_t equal_until_ = 0;
  std::uint64_t outside_until_ = 0;
  std::uint64_t looked_ = 0;
};

TEST_F(TimeAlone, IsThatOfStepsThatFeltNobody) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  int known = 0;
  for (int i = 0; i < 200; ++i) {
    World world;
    world.step = 1 + 30 * uniform(random);
    world.outlasts = random() % 2 == 0 ? 1 + 19 * uniform(random) : 0;
    world.equal = random() % 2 == 0 ? uniform(random) : 0;
    world.outside = random() % 3 == 0 ? uniform(random) : 0;
    world.slower = 1.2 + 2 * uniform(random);
    SCOPED_TRACE(testing::Message()
                 << i << ": step " << world.step << ", outlasts " << world.outlasts << ", equal "
                 << world.equal << ", outside " << world.outside << ", slower " << world.slower);
    board_ = std::make_unique<shm::Board>();
    add_client(kServer, 5, "serve");
    add_other(0);
    add_client(kOther + 1, 5, "peer").policy.store(shm::kDefaultPolicy.pack());
    closes(slot(kOther));
    quiet_ = Quiet();
    law_ = StepLaw(1, Quiet::kOutsideLookNs);
    law_.neighbours(1);
    law_.set(*shm::parse_target("step p99=1.2x"));
    run(world, random(), 40);
    if (law_.alone_ns() == 0) continue;
    ++known;
    EXPECT_NEAR(double(law_.alone_ns()) / 1e6, alone(world), 0.06 * alone(world));
  }
  EXPECT_GE(known, 90) << "the others have no time alone";
}

}  // namespace
}  // namespace sluice::intercept::test
