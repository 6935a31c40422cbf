// Whom a critical client learns its protection against: who uses the GPU, and not who is there.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "intercept/jobs/before_job.hpp"
#include "shm/mps_word.hpp"
#include "shm/policy_text.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kNowNs = 1'000'000'000'000;
constexpr std::uint64_t kSecond = 1'000'000'000;

class LowerClientsTest : public testing::Test {
 protected:
  shm::Slot& add(int slot, const std::string& name, std::uint8_t priority = 0) {
    shm::Slot& words = client_.board().slots[static_cast<std::size_t>(slot)];
    words.info.store(shm::SlotInfo{shm::SlotState::kLive, priority, 0, 1}.pack());
    words.policy.store(shm::kDefaultPolicy.pack());
    std::strncpy(words.name.data(), name.c_str(), words.name.size() - 1);
    client_.board().used.fetch_or(shm::bit(slot));
    return words;
  }
  LowerClients lower() { return lower_clients(*client_, kNowNs); }

  OwnClient client_{5};
};

// Prevents: what was learned next to a training begins anew with each context that somebody makes.
TEST_F(LowerClientsTest, AContextThatNeverUsesTheGpuChangesNothing) {
  EXPECT_EQ(lower().id, 0U);
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    client_.board().used.store(1);
    const auto used_slots = 1 + static_cast<int>(random() % 5);
    for (int i = 1; i <= used_slots; ++i) {
      add(i, "train" + std::to_string(random() % 3))
          .busy_ns.store(kNowNs - random() % 2 * kSecond * 9);
    }
    const LowerClients before = lower();
    EXPECT_NE(before.id, 0U);
    for (int i = 10; i < 14; ++i) {
      shm::Slot& idle = add(i, "idle" + std::to_string(random()), random() % 2 == 0 ? 0 : 2);
      idle.busy_ns.store(0);
      idle.job_since_ns.store(kNowNs);
    }
    EXPECT_EQ(lower().id, before.id);
    EXPECT_EQ(lower().busy, before.busy);
    client_.board().slots[12].busy_ns.store(kNowNs - 100 * kSecond);
    EXPECT_NE(lower().id, before.id) << "it has used the GPU, and will again";
  }
}

// Prevents: what was learned next to a training with all SMs is believed of one with a quarter.
TEST_F(LowerClientsTest, AnotherWidthIsAnotherNeighbour) {
  const auto set_width = [](shm::Slot& slot, unsigned percent) {
    slot.busy_ns.store(kNowNs);
    slot.mps.store(shm::MpsWord{shm::MpsWord::Mode::kSession, 1, std::uint8_t(percent), 0}.pack());
  };
  OwnClient::under_mps = true;
  OwnClient sharer(5);
  OwnClient::under_mps = false;
  std::memcpy(sharer.board().slots[1].name.data(), "train", 6);
  shm::Slot& train = sharer.board().slots[1];
  const auto lower_of = [&] { return lower_clients(*sharer, kNowNs); };
  train.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
  train.policy.store(shm::kDefaultPolicy.pack());
  sharer.board().used.fetch_or(shm::bit(1));
  set_width(train, 0);
  const LowerClients wide = lower_of();
  EXPECT_FALSE(wide.narrow);
  set_width(train, 100);
  EXPECT_EQ(lower_of().id, wide.id) << "the same width";
  set_width(train, 50);
  const LowerClients half = lower_of();
  EXPECT_NE(half.id, wide.id);
  EXPECT_TRUE(half.narrow);
  set_width(train, 25);
  EXPECT_NE(lower_of().id, half.id);
  shm::Slot& other = sharer.board().slots[2];
  other.info.store(train.info.load());
  other.policy.store(shm::kDefaultPolicy.pack());
  sharer.board().used.fetch_or(shm::bit(2));
  EXPECT_TRUE(lower_of().narrow) << "it has never used the GPU";
  set_width(other, 0);
  EXPECT_FALSE(lower_of().narrow) << "one of them may use all SMs";
}

TEST_F(LowerClientsTest, AWidthIsOfMpsOnly) {
  shm::Slot& train = add(1, "train");
  train.busy_ns.store(kNowNs);
  const LowerClients before = lower();
  train.mps.store(shm::MpsWord{shm::MpsWord::Mode::kOther, 0, 12, 0}.pack());
  EXPECT_EQ(lower().id, before.id);
  EXPECT_FALSE(lower().narrow);
}

TEST_F(LowerClientsTest, AnIdleOneAloneIsSomebody) {
  add(1, "idle").busy_ns.store(0);
  EXPECT_NE(lower().id, 0U) << "it may begin at any time";
  EXPECT_FALSE(lower().busy);
}

}  // namespace
}  // namespace sluice::intercept::test
