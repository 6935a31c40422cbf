// Whom a critical client learns its protection against: who uses the GPU, and not who is there.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "intercept/jobs/before_job.hpp"
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

TEST_F(LowerClientsTest, AnIdleOneAloneIsSomebody) {
  add(1, "idle").busy_ns.store(0);
  EXPECT_NE(lower().id, 0U) << "it may begin at any time";
  EXPECT_FALSE(lower().busy);
}

}  // namespace
}  // namespace sluice::intercept::test
