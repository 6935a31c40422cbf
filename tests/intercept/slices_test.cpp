// What a client shows of its time slice when the system does not set what was decided.
#include "intercept/slot/slices.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "intercept/driver/process.hpp"
#include "shm/policy_text.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

using shm::SliceState;

constexpr std::uint64_t kMs = 1'000'000;
std::atomic<bool> g_refuses = false;

/// A best-effort client below a server that keeps the GPU busy.
class SlicesOfAClient : public testing::TestWithParam<bool> {
 protected:
  SlicesOfAClient() {
    g_process.driver.simgpu_set_slice = [](CUdevice, std::uint64_t) {
      return g_refuses ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    };
    OwnClient::under_mps = GetParam();
    g_refuses = GetParam();
    client_.emplace(0);
    (*client_)->slot().policy.store(shm::kDefaultPolicy.pack());
    add(1, 5).gpu_share.store(900);
    slices_.emplace(**client_, setter_);
  }
  ~SlicesOfAClient() override { OwnClient::under_mps = false; }

  shm::Slot& add(int slot, std::uint8_t priority) {
    shm::Slot& words = client_->board().slots[static_cast<std::size_t>(slot)];
    words.info.store(shm::SlotInfo{shm::SlotState::kLive, priority, 0, 1}.pack());
    words.policy.store(shm::kDefaultPolicy.pack());
    client_->board().used.fetch_or(shm::bit(slot));
    return words;
  }
  /// After two seconds in which all are busy.
  SliceState state() {
    for (int i = 0; i < 100; ++i) {
      now_ += 20 * kMs;
      for (auto& slot : client_->board().slots) slot.busy_ns.store(now_);
      slices_->tick(now_, 0, 0);
      slices_->apply();
    }
    return static_cast<SliceState>((*client_)->slot().slice_state.load());
  }

  std::optional<OwnClient> client_;
  Worker setter_{"test", [] { return Worker::Sleep{1'000'000'000, true}; }};
  std::optional<Slices> slices_;
  std::uint64_t now_ = 1'000'000 * kMs;
};

INSTANTIATE_TEST_SUITE_P(, SlicesOfAClient, testing::Values(false, true),
                         [](const auto& mps) { return mps.param ? "Mps" : "TimeSliced"; });

// Prevents: of several programs below, status says that they would have short slices one by one,
// where none can have one.
TEST_P(SlicesOfAClient, SeveralIsNoReasonWhereNoneCanBeSet) {
  EXPECT_EQ(state(), GetParam() ? SliceState::kNoGroup : SliceState::kShort);
  add(2, 0);
  EXPECT_EQ(state(), GetParam() ? SliceState::kNoGroup : SliceState::kSeveral);
}

// The same where another program was below from the start, so that nothing was ever set.
TEST_P(SlicesOfAClient, NothingNeedBeTriedToKnowIt) {
  add(2, 0);
  EXPECT_EQ(state(), GetParam() ? SliceState::kNoGroup : SliceState::kSeveral);
}

}  // namespace
}  // namespace sluice::intercept::test
