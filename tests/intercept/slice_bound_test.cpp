// Time slices on random boards, in virtual time: what a client that does next to nothing changes,
// and for how long anybody makes others wait.
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "intercept/slot/slice_rule.hpp"
#include "intercept/slot/turn_rule.hpp"
#include "shm/outside_word.hpp"
#include "shm/slice.hpp"
#include "tests/support/board_test.hpp"

namespace sluice::intercept::test {
namespace {

using sluice::test::kMs;
using sluice::test::kNow;
using Random = std::mt19937;
using Slice = SliceRule::Slice;

constexpr std::uint64_t kTickNs = 20 * kMs;
constexpr int kTicks = 400;

template <class Value, std::size_t kSize>
Value one_of(Random& random, const std::array<Value, kSize>& values) {
  return values[random() % kSize];
}

/// What one client does: it uses the GPU, launches a little now and then, or has a context only.
struct Load {
  enum class Kind : std::uint8_t { kIdle, kLight, kHeavy };
  Kind kind = Kind::kIdle;
  std::uint64_t on_ns = 0;      ///< Of each period,
  std::uint64_t period_ns = 1;  ///< shifted by
  std::uint64_t phase_ns = 0;

  static Load random(Random& random) {
    Load load;
    load.kind = one_of(random, std::array{Kind::kIdle, Kind::kLight, Kind::kHeavy, Kind::kHeavy});
    load.period_ns = (1 + random() % 8) * 1000 * kMs;
    load.on_ns = load.period_ns / 4 * (1 + random() % 4);
    load.phase_ns = random() % load.period_ns;
    return load;
  }
  void act(shm::Slot& slot, std::uint64_t now_ns) const {
    const bool on = (now_ns + phase_ns) % period_ns < on_ns;
    if (kind == Kind::kIdle || !on) return;
    if (kind == Kind::kHeavy) slot.busy_ns.store(now_ns);
    if (kind == Kind::kHeavy || now_ns / kTickNs % 25 == 0) slot.job_since_ns.store(now_ns);
  }
};

class RandomBoard {
 public:
  explicit RandomBoard(std::uint32_t seed) : random_(seed) {
    const int clients = 2 + static_cast<int>(random_() % 6);
    for (int i = 0; i < clients; ++i) {
      add(one_of(random_, std::array{0, 0, 0, 2, 5, 5, 9}), Load::random(random_));
    }
    watched_ = clients;
    outside_ =
        one_of(random_, std::array<std::uint32_t, 6>{0, 0, 0, 0, 1, shm::OutsideWord{0, 1}.pack()});
  }

  shm::Slot& add(int priority, Load load) {
    const int index = 3 * static_cast<int>(loads_.size());  // with gaps
    shm::Slot& slot = board_->slots[static_cast<std::size_t>(index)];
    slot.info.store(
        shm::SlotInfo{shm::SlotState::kLive, static_cast<std::uint8_t>(priority), 0, 1}.pack());
    const auto kind = one_of(random_, std::array{shm::PolicyKind::kDevice, shm::PolicyKind::kDevice,
                                                 shm::PolicyKind::kNone});
    slot.policy.store(shm::Policy{kind, {}, 0}.pack());
    slot.gpu_share.store(one_of(random_, std::array{0U, 300U, 900U, 900U}));
    const auto state = one_of(random_, std::array{shm::StepState::kNone, shm::StepState::kNone,
                                                  shm::StepState::kWindows});
    slot.steps.state.store(static_cast<std::uint32_t>(state));
    slot.requested_slice.store(one_of(
        random_, std::array{shm::kSliceAuto, shm::kSliceAuto, shm::kSliceOff, 250U, 100'000U}));
    slot.job_times.ended.store(30);
    slot.gpu_ns.store(30 * one_of(random_, std::array{1, 5, 80}) * kMs);
    slot.job_times.total_ns.store(~std::uint64_t{0} >> 1U);
    board_->used.fetch_or(shm::bit(index));
    loads_.push_back(load);
    rules_.emplace_back();
    slices_.emplace_back();
    return slot;
  }

  /// One tick of all clients.
  void tick() {
    now_ += kTickNs;
    board_->devices[0].outside.store(now_ / (1500 * kMs) % 3 == 0 ? 0 : outside_);
    for (std::size_t i = 0; i < loads_.size(); ++i) loads_[i].act(slot(i), now_);
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      const int index = 3 * static_cast<int>(i);
      slices_[i] = rules_[i].tick(*board_, index, now_);
      slot(i).slice_us.store(slices_[i].us);
      slot(i).slice_state.store(static_cast<std::uint32_t>(slices_[i].state));
    }
  }

  /// Of the clients that were there from the start.
  [[nodiscard]] std::vector<Slice> slices() const {
    return {slices_.begin(), slices_.begin() + watched_};
  }
  [[nodiscard]] std::vector<bool> turns() const {
    std::vector<bool> turns;
    for (int i = 0; i < watched_; ++i) turns.push_back(should_take_turns(*board_, 3 * i, now_));
    return turns;
  }
  [[nodiscard]] std::size_t count() const { return loads_.size(); }
  shm::Slot& slot(std::size_t client) { return board_->slots[3 * client]; }
  [[nodiscard]] std::uint32_t slice_us(std::size_t client) const { return slices_[client].us; }

  /// Whether somebody whom the client does not hold has work on the device now.
  bool others_wait_for(std::size_t client) {
    const auto own = shm::SlotInfo::unpack(slot(client).info.load());
    bool wait = board_->devices[0].outside.load() != 0;
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      const auto info = shm::SlotInfo::unpack(slot(i).info.load());
      if (i == client) continue;
      const bool held = info.priority < own.priority &&
                        shm::Policy::unpack(slot(i).policy.load()).kind != shm::PolicyKind::kNone;
      const bool uses = now_ == slot(i).busy_ns.load();
      wait = wait || (!held && uses) ||
             (info.priority >= own.priority && info.priority > 0 &&
              now_ == slot(i).job_since_ns.load());
    }
    return wait;
  }

 private:
  Random random_;
  std::unique_ptr<shm::Board> board_ = std::make_unique<shm::Board>();
  std::vector<Load> loads_;
  std::vector<SliceRule> rules_;
  std::vector<Slice> slices_;
  int watched_ = 0;
  std::uint32_t outside_ = 0;
  std::uint64_t now_ = kNow;
};

// Prevents: a second best-effort program with an empty kernel each 0.5 s switches short slices off
// for all, and a critical job takes 2.5 times as long. The same of a context without work.
TEST(SlicesOnRandomBoards, WhoDoesNextToNothingChangesNobodysSliceOrTurn) {
  int shorts = 0;
  int longs = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    RandomBoard without(seed);
    RandomBoard with(seed);
    Random random(seed + 1'000'000);
    for (std::uint32_t more = 1 + random() % 4; more != 0; --more) {
      Load load{Load::Kind::kLight, 1, 1, 0};
      int priority = 0;
      if (random() % 2 == 0) {
        load.kind = Load::Kind::kIdle;
        priority = one_of(random, std::array{0, 2, 5, 9, 200});
      }
      with.add(priority, load);
    }
    // A slice that somebody asks for himself holds next to every client above, busy or not.
    for (std::size_t i = 0; i < without.count(); ++i) {
      if (without.slot(i).requested_slice.load() == shm::kSliceOff) continue;
      without.slot(i).requested_slice.store(shm::kSliceAuto);
      with.slot(i).requested_slice.store(shm::kSliceAuto);
    }
    for (int tick = 0; tick < kTicks; ++tick) {
      without.tick();
      with.tick();
      ASSERT_EQ(without.slices(), with.slices()) << "seed " << seed << ", tick " << tick;
      ASSERT_EQ(without.turns(), with.turns()) << "seed " << seed << ", tick " << tick;
    }
    for (const Slice& slice : without.slices()) {
      shorts += slice.state == shm::SliceState::kShort ? 1 : 0;
      longs += slice.state == shm::SliceState::kLong ? 1 : 0;
    }
  }
  EXPECT_GT(shorts, 20);
  EXPECT_GT(longs, 20);
}

// Prevents: best effort that asks for 100 ms, or the highest client by itself, makes everybody else
// on the GPU wait for so long: a critical job of 1 ms took 12.5, and up to 138 ms.
TEST(SlicesOnRandomBoards, NobodyHasALongSliceAtTheCostOfOthers) {
  int longs = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    RandomBoard board(seed);
    for (int tick = 0; tick < kTicks; ++tick) {
      board.tick();
      for (std::size_t i = 0; i < board.count(); ++i) {
        longs += board.slice_us(i) > shm::kDriversSliceUs ? 1 : 0;
        if (board.others_wait_for(i)) {
          ASSERT_LE(board.slice_us(i), shm::kDriversSliceUs)
              << "seed " << seed << ", tick " << tick << ", client " << i;
        }
      }
    }
  }
  EXPECT_GT(longs, 1000);
}

// Prevents: the site policy cannot allow what it should be able to allow.
TEST(SlicesOnRandomBoards, TheSiteMayAllowMore) {
  constexpr std::uint32_t kAllowedUs = 30'000;
  std::uint32_t longest = 0;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    RandomBoard board(seed);
    for (std::size_t i = 0; i < board.count(); ++i) board.slot(i).slice_ceiling.store(kAllowedUs);
    for (int tick = 0; tick < kTicks; ++tick) {
      board.tick();
      for (std::size_t i = 0; i < board.count(); ++i) {
        if (!board.others_wait_for(i)) continue;
        ASSERT_LE(board.slice_us(i), kAllowedUs);
        longest = std::max(longest, board.slice_us(i));
      }
    }
  }
  EXPECT_EQ(longest, kAllowedUs);
}

}  // namespace
}  // namespace sluice::intercept::test
