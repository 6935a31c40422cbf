// In random worlds, the broker promises no memory twice, refuses no model that could have come in,
// and lets no training sleep indefinitely. A mistake would be an out-of-memory error of somebody's
// program, or a request or a training that waits indefinitely.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "server/memory/broker.hpp"

namespace sluice::server::memory {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kStart = 1000 * kMs;

// MiB
constexpr std::uint64_t kMostModel = 400;
constexpr std::uint64_t kMostStuck = 60;

/// Models, requests, a trainer, and what takes memory of others, in virtual time, driven by the
/// broker.
class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    options_.cold_cache_bytes = below(400) * kMiB;
    options_.give_up_ns = 1000 * kMs;
    state_.now_ns = kStart;
    state_.other_bytes = below(100) * kMiB;
    state_.models.resize(below(12, 3));
    for (std::uint32_t id = 0; id < state_.models.size(); ++id) {
      model(id).id = id;
      model(id).bytes = below(kMostModel, 1) * kMiB;
    }
    if (below(4) > 0) {
      base_ = below(420) * kMiB;
      fits_after_ = below(200, 1);
      TrainerState one;
      one.held = base_ + below(300, 1) * kMiB;
      one.may_shrink = true;
      one.obeys = below(5) > 0;
      state_.trainers.push_back(one);
    }
    // Just enough for a sleeping trainer and any model, or more.
    options_.pool_bytes = state_.other_bytes + base_ + below(1000, kMostStuck + kMostModel) * kMiB;
    restless_ = below(2) == 0;
  }

  void step() {
    state_.now_ns += below(20, 1) * kMs / 4;
    // Training grows after a time without a shortage.
    if (calm_until_ns_ != kNever && below(150) == 0) {
      calm_until_ns_ = state_.now_ns + below(1500) * kMs;
    }
    for (ModelMemory& model : state_.models) change(model);
    for (TrainerState& one : state_.trainers) change(one);
    disturb();
    const bool is_short = std::ranges::any_of(state_.models, &ModelMemory::wanted);
    if (is_short) state_.short_ns = state_.now_ns;
    apply(decide(options_, state_));
  }

  /// No request comes any more: training must get what it needs to run.
  void end() {
    calm_until_ns_ = kNever;
    restless_ = false;
    options_.cold_cache_bytes = 0;  // training has what is beyond it, which may be too little
    const std::uint64_t until = state_.now_ns + 10'000 * kMs;
    while (state_.now_ns < until && !testing::Test::HasFatalFailure()) step();
    for (const TrainerState& one : state_.trainers) {
      ASSERT_FALSE(one.sleeps);
      ASSERT_GE(one.grant, one.floor);
    }
  }

 private:
  std::uint64_t below(std::uint64_t end, std::uint64_t first = 0) {
    return first + random_() % (end - first);
  }
  ModelMemory& model(std::uint32_t id) { return state_.models.at(id); }

  /// Requests come and go.
  void change(ModelMemory& one) {
    if (one.users > 0 && below(3) == 0 && --one.users == 0) one.last_used_ns = state_.now_ns;
    if (state_.now_ns < calm_until_ns_ || below(12) > 0) return;
    if (one.resident && !one.leaving) {
      ++one.users;
    } else if (one.wanted_ns == kNever) {
      one.wanted_ns = state_.now_ns;
      one.deadline_ns = below(2) == 0 ? kNever : state_.now_ns + below(200) * kMs;
    }
  }
  /// It obeys in steps, keeps what cannot be given back, and takes what it may.
  void change(TrainerState& one) {
    if (ordered_) {
      const std::uint64_t least = std::max(one.grant, base_ + stuck_);
      one.held -= std::min(one.held - std::min(one.held, least), below(200) * kMiB);
      ordered_ = one.held > least;
    } else if (!one.sleeps && below(3) == 0) {
      const std::uint64_t most = std::min(one.grant, options_.pool_bytes - used());
      if (most > one.held) one.held += below(most - one.held + 1);
      if (one.obeys && one.slope == 0 && below(fits_after_) == 0) fit(one);
    }
    one.keeps = !ordered_ && one.grant < one.held ? one.held - one.grant : 0;
  }
  /// From its first batches on, it says what it needs.
  void fit(TrainerState& one) {
    one.base = base_;
    one.slope = below(below(2) == 0 ? 30 : 300, 1) * kMiB;
    one.floor = base_ + one.slope;
  }
  /// A model is loaded for the first time, or somebody else uses the device, for a while.
  void disturb() {
    const bool loads = below(2) == 0;
    std::uint64_t& bytes = loads ? state_.loading_bytes : state_.missing_bytes;
    std::uint64_t& until_ns = loads ? loading_until_ns_ : missing_until_ns_;
    if (restless_ && below(100) == 0) {
      bytes = below(400) * kMiB;
      until_ns = state_.now_ns + below(500) * kMs;
    } else if (state_.now_ns >= until_ns) {
      bytes = 0;
    }
    if (elsewhere() > 0) elsewhere_ns_ = state_.now_ns;
  }
  [[nodiscard]] std::uint64_t elsewhere() const {
    return state_.loading_bytes + state_.missing_bytes;
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
      // All models fit, so a trainer that does not obey is the reason, or memory that is elsewhere.
      const bool deaf = !state_.trainers.empty() && !state_.trainers[0].obeys;
      ASSERT_TRUE(deaf || state_.now_ns - elsewhere_ns_ < options_.give_up_ns);
      model(id).wanted_ns = model(id).deadline_ns = kNever;
    }
    // Nobody is promised what another one holds or may take.
    if (!decision.load.empty() || promised() > before) {
      ASSERT_LE(promised() + elsewhere(), options_.pool_bytes);
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
    using shm::MemoryOrder;
    ASSERT_TRUE(one.may_shrink);
    if (!one.obeys) {
      ASSERT_GE(grant.bytes, one.held);
      ASSERT_TRUE(grant.order == MemoryOrder::kNone && !grant.wakes);
    } else if (grant.order == MemoryOrder::kSleep) {
      ASSERT_EQ(grant.bytes, one.base);
      one.sleeps = true;
    } else if (!one.sleeps || grant.wakes) {
      ASSERT_TRUE(grant.bytes >= std::min(one.floor, one.grant) || one.grant == shm::kNoLimit);
      if (grant.wakes) one.sleeps = false;
    }
    if (grant.order == MemoryOrder::kShrink || grant.order == MemoryOrder::kSleep) {
      ordered_ = true;
      stuck_ = below(3) == 0 ? below(kMostStuck) * kMiB : 0;
    }
    if (grant.order == MemoryOrder::kShrink) {
      ASSERT_GT(one.floor, 0U);
      const bool urgent = std::ranges::any_of(state_.models, [&](const ModelMemory& each) {
        return each.wanted() && each.deadline_ns < one.shrunk_ns + options_.shrink_gap_ns;
      });
      ASSERT_TRUE(urgent || one.shrunk_ns == 0 ||
                  state_.now_ns - one.shrunk_ns >= options_.shrink_gap_ns);
      one.shrunk_ns = state_.now_ns;
    }
    const bool grew = one.grant != shm::kNoLimit && grant.bytes > one.grant;
    if (grew && state_.short_ns != 0) {
      ASSERT_GE(state_.now_ns - state_.short_ns, options_.grow_after_ns);
    }
    one.grant = grant.bytes;
  }

  std::mt19937 random_;
  BrokerOptions options_;
  MemoryState state_;
  std::uint64_t base_ = 0;   ///< What the trainer needs at least; it says so once it has fitted it.
  std::uint64_t stuck_ = 0;  ///< What it cannot give back besides, after its last order.
  bool ordered_ = false;     ///< It has an order that it has not obeyed yet.
  std::uint64_t fits_after_ = 1;
  bool restless_ = false;
  std::uint64_t calm_until_ns_ = kStart + 300 * kMs;  ///< No requests come until then.
  std::uint64_t loading_until_ns_ = 0;
  std::uint64_t missing_until_ns_ = 0;
  std::uint64_t elsewhere_ns_ = 0;  ///< Last time that memory was elsewhere.
};

TEST(BrokerProperties, HoldInRandomWorlds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    World world(seed);
    for (int i = 0; i < 3000; ++i) {
      world.step();
      if (testing::Test::HasFatalFailure()) {
        FAIL() << "seed " << seed << " step " << i;
      }
    }
    world.end();
    if (testing::Test::HasFatalFailure()) FAIL() << "the end of seed " << seed;
  }
}

}  // namespace
}  // namespace sluice::server::memory
