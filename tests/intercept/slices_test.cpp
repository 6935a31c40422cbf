// What a client shows of its time slice when the system does not set what was decided.
#include "intercept/slot/slices.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <new>
#include <optional>
#include <string>

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
  Worker& setter_ = idle_worker();
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

// Prevents: a client that no gate stops counts as idle while its gate is closed, and whoever closes
// it takes a long slice at its cost.
TEST_P(SlicesOfAClient, AClosedGateStopsNobodyUnderPolicyNone) {
  shm::Slot& words = (*client_)->slot();
  for (const char* const policy : {"gate", "device:200us", "none"}) {
    SCOPED_TRACE(policy);
    words.requested_policy.store(shm::parse_policy(policy)->pack());
    (*client_)->take_policy();
    words.gate.store(2);
    words.busy_ns.store(0);
    words.job.store(1);  // of launches that nobody has measured
    for (int i = 0; i < 50; ++i) {
      words.entries[0][shm::Count::kGated].fetch_add(1);
      now_ += 20 * kMs;
      slices_->tick(now_, 0, 0);
    }
    EXPECT_EQ(words.busy_ns.load() != 0, std::string(policy) == "none");
  }
}

/// A best-effort client with three contexts on a GPU, whose kernel module is a table here. Requests
/// fail as a test says.
struct Kernel {
  std::map<std::uint32_t, std::uint64_t> slices;
  int asked = 0;
  int fails_from = -1;   ///< The first request that fails, from 0,
  int fails_until = -1;  ///< and the first one after it that does not.
};
Kernel g_kernel;

bool ask(int /*fd*/, std::uint32_t /*client*/, std::uint32_t object, bool sets,
         std::uint64_t& us) noexcept {
  const int number = g_kernel.asked++;
  const auto found = g_kernel.slices.find(object);
  if (number >= g_kernel.fails_from && number < g_kernel.fails_until) return false;
  if (found == g_kernel.slices.end()) return false;
  if (sets) found->second = us;
  us = found->second;
  return true;
}

class SlicesOnAGpu : public testing::Test {
 protected:
  SlicesOnAGpu() {
    g_kernel = {};
    g_process.driver.simgpu_set_slice = nullptr;
    new (&g_process.channel_groups) ChannelGroups(&ask);
    for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) make_context(object);
    client_.emplace(0);
    (*client_)->slot().policy.store(shm::kDefaultPolicy.pack());
    server().info.store(shm::SlotInfo{shm::SlotState::kLive, 5, 0, 1}.pack());
    server().gpu_share.store(900);
    client_->board().used.fetch_or(shm::bit(1));
    slices_.emplace(**client_, setter_);
  }
  ~SlicesOnAGpu() override { new (&g_process.channel_groups) ChannelGroups; }

  static void make_context(std::uint32_t object) {
    g_kernel.slices[object] = 2048;
    const std::array<std::uint32_t, 8> parameters{0, 0, 0, 1};
    const struct {
      std::uint32_t client, parent, object, object_class;
      std::uint64_t parameters, rights;
      std::uint32_t size, flags, status, padding;
    } asked{7U << 24U, 2,  object, 0xa06c, std::bit_cast<std::uint64_t>(parameters.data()),
            0,         32, 0,      0,      0};
    ChannelGroups::begins_context(0);
    g_process.channel_groups.saw(8, 0xc030'462b, &asked);
    g_process.channel_groups.ends_context(0);
  }
  static void release(std::uint32_t object) {
    const std::array<std::uint32_t, 4> asked{7U << 24U, 2, object, 0};
    g_process.channel_groups.saw(8, 0xc010'4629, asked.data());
  }
  /// The setting thread comes only when the watcher wakes it.
  void tick(bool server_works) {
    now_ += 20 * kMs;
    if (server_works) server().busy_ns.store(now_);
    if (slices_->tick(now_, 0, 0)) slices_->apply();
  }
  void run(int ticks, bool server_works) {
    for (int i = 0; i < ticks; ++i) tick(server_works);
  }
  shm::Slot& server() { return client_->board().slots[1]; }
  void server_ends() { server().info.store(0); }
  void expect_all(std::uint64_t us, const std::string& where) {
    for (const auto& [object, has] : g_kernel.slices) EXPECT_EQ(has, us) << where;
    const bool drivers = us == 2048;
    const shm::Slot& slot = (*client_)->slot();
    EXPECT_EQ(slot.slice_us.load(), drivers ? 0 : us) << where;
    const SliceState state = drivers ? SliceState::kDriver : SliceState::kShort;
    EXPECT_EQ(slot.slice_state.load(), static_cast<std::uint32_t>(state)) << where;
  }

  std::optional<OwnClient> client_;
  Worker& setter_ = idle_worker();
  std::optional<Slices> slices_;
  std::uint64_t now_ = 1'000'000 * kMs;
};

// Prevents: one failure, whichever request it is, leaves contexts with the wrong slice for good.
TEST_F(SlicesOnAGpu, AFailedSettingIsTriedAgain) {
  for (const int failures : {1, 2, 5, 40}) {
    for (int from = 0; from < 24; ++from) {
      const std::string where = std::to_string(failures) + " from " + std::to_string(from);
      slices_.emplace(**client_, setter_);
      server().info.store(shm::SlotInfo{shm::SlotState::kLive, 5, 0, 1}.pack());
      g_kernel.asked = 0;
      g_kernel.fails_from = from;
      g_kernel.fails_until = from + failures;
      run(5000, true);
      expect_all(100, where);
      server_ends();
      run(5000, false);
      expect_all(2048, where);
    }
  }
}

// Prevents: a system that refuses is asked 50 times a second for as long as the program runs.
TEST_F(SlicesOnAGpu, ASystemThatRefusesIsAskedSeldomAndSaid) {
  g_kernel.fails_from = 0;
  g_kernel.fails_until = 1 << 30;
  run(50 * 600, true);
  EXPECT_LT(g_kernel.asked, 3 * 2 * 75);
  EXPECT_EQ((*client_)->slot().slice_state.load(),
            static_cast<std::uint32_t>(SliceState::kRefused));
  EXPECT_EQ((*client_)->slot().slice_us.load(), 0U);
}

// Prevents: status says that the slice is the driver's, while a kernel is stopped each 0.1 ms.
TEST_F(SlicesOnAGpu, ASliceThatCannotBeGivenBackIsShown) {
  run(50, true);
  expect_all(100, "set");
  server_ends();
  // Each group is set, and read: the settings fail.
  for (int request = 0; request < 6; request += 2) {
    g_kernel.fails_from = g_kernel.asked + request;
    g_kernel.fails_until = g_kernel.fails_from + 1;
    tick(false);
    if (request == 0) {
      EXPECT_EQ((*client_)->slot().slice_state.load(),
                static_cast<std::uint32_t>(SliceState::kRefused));
    }
  }
  run(100, false);
  expect_all(2048, "tried again");
}

// Prevents: a context that ends while slices are set decides about all others.
TEST_F(SlicesOnAGpu, AContextThatEndsMeanwhileIsNoReason) {
  g_kernel.slices.erase(0x15);
  run(50, true);
  for (const auto& [object, us] : g_kernel.slices) EXPECT_EQ(us, 100U);
  release(0x15);
  run(1, true);
  expect_all(100, "at the next look");
  make_context(0x45);
  run(1, true);
  expect_all(100, "a new context");
}

}  // namespace
}  // namespace sluice::intercept::test
