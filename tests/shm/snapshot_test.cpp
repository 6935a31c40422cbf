// What a snapshot says of a board.
#include "shm/snapshot.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "shm/target_counts.hpp"
#include "tests/support/board_test.hpp"

namespace sluice::shm {
namespace {

using test::kMs;
using test::kNow;
using testing::ElementsAre;

class Snapshots : public test::BoardTest {
 protected:
  [[nodiscard]] Snapshot snapshot() const { return take_snapshot(*board_, kNow); }
  void held(int client, int by, std::uint64_t ns) {
    slot(client).held_by_ns[static_cast<std::size_t>(by)].store(ns);
  }
};

std::vector<std::pair<std::string, std::uint64_t>> named(const std::vector<Wait>& waits) {
  std::vector<std::pair<std::string, std::uint64_t>> pairs;
  for (const Wait& wait : waits) pairs.emplace_back(wait.name, wait.ns);
  return pairs;
}

// Prevents: a victim of a holder is left out, the first one, the last one or one in between.
TEST_F(Snapshots, AHolderHasAllItsVictimsTheLongestFirst) {
  for (const int index : {0, 1, 2, 62}) {
    add_client(index, index == 1 ? 100 : 0, ("c" + std::to_string(index)).c_str());
  }
  held(0, 1, 1 * kMs);
  held(2, 1, 3 * kMs);
  held(62, 1, 2 * kMs);
  const Snapshot taken = snapshot();
  const ClientSnapshot& holder = taken.clients.front();
  ASSERT_EQ(holder.slot, 1);
  using Named = std::pair<std::string, std::uint64_t>;
  EXPECT_THAT(named(holder.held_others),
              ElementsAre(Named{"c2", 3 * kMs}, Named{"c62", 2 * kMs}, Named{"c0", 1 * kMs}));
  EXPECT_EQ(held_others_ns(holder), 6 * kMs);
  EXPECT_TRUE(holder.held_by.empty());
}

// Prevents: a client blames another one for the time of a third, of the controller, or of a client
// that has left.
TEST_F(Snapshots, WhoHeldAClient) {
  add_client(0, 0, "held");
  add_client(3, 9, "third");
  add_client(5, 9, "fifth");
  held(0, 3, 2 * kMs);
  held(0, 5, 4 * kMs);
  held(0, 7, 8 * kMs);  // has ended
  held(0, kControllerBit, 1 * kMs);
  slot(0).closed_ns.store(20 * kMs);
  // The hold that lasts is of one holder.
  hold(3, 0, kNow - 16 * kMs);
  hold(5, 0, kNow - 16 * kMs);
  slot(0).job.store(1);
  slot(0).job_since_ns.store(kNow - 16 * kMs);
  const Snapshot taken = snapshot();
  const ClientSnapshot& client = taken.clients.back();
  ASSERT_EQ(client.slot, 0);
  using Named = std::pair<std::string, std::uint64_t>;
  EXPECT_THAT(named(client.held_by), ElementsAre(Named{"third", 18 * kMs}, Named{"fifth", 4 * kMs},
                                                 Named{"the controller", 1 * kMs}));
  EXPECT_EQ(client.held_by.back().pid, 0U);
  EXPECT_EQ(client.held_total_ns, 36 * kMs);
  EXPECT_EQ(held_by_ended_ns(client), 13 * kMs);
  ASSERT_EQ(client.holders.size(), 2U);
  EXPECT_EQ(client.holders[0].pid, 103U);
  EXPECT_EQ(client.holders[1].priority, 9);
}

// Prevents: a controller that is dead, stopped or of another time counts as living.
TEST_F(Snapshots, TheController) {
  board_->max_hold_ns.store(7 * kMs);
  board_->board_id.store(11);
  board_->controller_starts.store(12);
  const Snapshot taken = snapshot();
  EXPECT_TRUE(taken.controller_lives);
  EXPECT_EQ(taken.heartbeat_age_ns, 5 * kMs);
  EXPECT_EQ(taken.max_hold_ns, 7 * kMs);
  EXPECT_EQ(taken.board_id, 11U);
  EXPECT_EQ(taken.controller_starts, 12U);
  EXPECT_EQ(taken.taken_ns, kNow);
  board_->heartbeat_ns.store(kNow - kHeartbeatLostNs + 1);
  EXPECT_TRUE(snapshot().controller_lives);
  board_->heartbeat_ns.store(kNow - kHeartbeatLostNs);
  EXPECT_FALSE(snapshot().controller_lives);
  board_->heartbeat_ns.store(kNow + 1);
  EXPECT_EQ(snapshot().heartbeat_age_ns, 0U) << "beaten since the time was taken";
  board_->controller_pid.store(0);
  EXPECT_FALSE(snapshot().controller_lives);
}

// Prevents: clients in another order than the one that tables promise, or free slots among them.
TEST_F(Snapshots, ClientsAreByDevicePriorityAndPid) {
  add_client(9, 1, "low");
  add_client(4, 5, "later");
  add_client(2, 5, "earlier");
  add_client(1, 200, "other device");
  slot(1).info.store(SlotInfo{SlotState::kLive, 200, 1, 1}.pack());
  add_client(6, 9, "free");
  set_state(6, SlotState::kFree, 9);
  std::vector<std::string> names;
  for (const ClientSnapshot& client : snapshot().clients) names.push_back(client.command);
  EXPECT_THAT(names, ElementsAre("earlier", "later", "low", "other device"));
}

// Prevents: launches count twice, or captured ones as if they had passed a gate.
TEST_F(Snapshots, LaunchesAreGatedCapturedOrBypassed) {
  Slot& client = add_client(0, 0, "a");
  client.entries[0][Count::kGated].store(10);
  client.entries[0][Count::kCaptured].store(4);
  client.entries[0][Count::kWaited].store(3);
  client.entries[2][Count::kGated].store(1);
  client.entries[2][Count::kBypassRefusedWait].store(5);
  const ClientSnapshot taken = snapshot().clients.front();
  ASSERT_EQ(taken.entries.size(), 2U) << "an entry without launches is not shown";
  EXPECT_EQ(taken.launches, 20U);
  EXPECT_EQ(taken.bypassed, 5U);
  EXPECT_EQ(taken.waits, 3U);
  EXPECT_EQ(taken.entries[1].count(Count::kBypassRefusedWait), 5U);
}

// Prevents: 18446744073709551615 launches outside of the gate, because the client has launched
// between two looks at its counters.
TEST_F(Snapshots, OfAClientThatLaunchesOn) {
  add_client(0, 0, "a");
  EntryCounters& counters = slot(0).entries[0];
  counters[Count::kGated].store(1);
  std::atomic<bool> over = false;
  std::thread client([&] {
    while (!over) counters.stripe(0).fetch_add(1);
  });
  // Until it has launched between so many looks.
  std::uint64_t last = 0;
  bool whole = true;
  for (int changes = 0; changes < 20'000 && whole;) {
    const ClientSnapshot taken = snapshot().clients.front();
    changes += taken.launches != std::exchange(last, taken.launches) ? 1 : 0;
    whole = taken.bypassed == 0 && taken.launches == taken.entries.front().count(Count::kGated);
  }
  over = true;
  client.join();
  EXPECT_TRUE(whole);
}

// Prevents: a figure of a client is missing, or is that of another word.
TEST_F(Snapshots, EachWordIsInItsField) {
  Slot& client = add_client(4, 7, "a");
  client.uid.store(1);
  client.gpu_ns.store(2);
  client.attached_ns.store(kNow - 3);
  client.job_times.total_ns.store(4);
  client.max_hold_opened.store(5);
  client.unhooked_lookups.store(6);
  client.longest_launch_ns.store(7);
  client.ungated_graph_ns.store(8);
  client.unknown_launches.store(9);
  client.predictions.store(12);
  client.prediction_hits.store(11);
  client.prediction_cost_ns.store(13);
  client.target_ns.store(14);
  client.alone_ns.store(15);
  client.target_jobs.store(17);
  client.target_kept.store(16);
  client.open_ns.store(18);
  client.target_total_ns.store(19);
  client.memory.held.store(20);
  client.memory.peak.store(21);
  client.memory.base.store(22);
  client.memory.slope.store(23);
  client.memory.refused.store(24);
  client.memory.refused_allocations.store(25);
  client.memory_limit.store(26);
  client.requested_give.store(pack_give(27));
  client.gives_known.store(1);
  client.gives_closing.store(28);
  client.gives_windows.store(29);
  client.gives_open.store(30);
  client.items.store(31);
  client.items_ns.store(32);
  client.items_waited_ns.store(33);
  std::strcpy(client.label.data(), "job=a");
  std::strcpy(client.unhooked_name.data(), "cuNew");
  const ClientSnapshot taken = snapshot().clients.front();
  EXPECT_EQ(taken.slot, 4);
  EXPECT_EQ(taken.pid, 104U);
  EXPECT_EQ(taken.priority, 7);
  EXPECT_EQ(taken.generation, 1U);
  EXPECT_THAT((std::vector<std::uint64_t>{taken.uid,
                                          taken.gpu_ns,
                                          taken.attached_ns,
                                          taken.jobs_total_ns,
                                          taken.max_hold_opened,
                                          taken.unhooked_lookups,
                                          taken.longest_launch_ns,
                                          taken.ungated_graph_ns,
                                          taken.unknown_launches,
                                          taken.prediction_hits,
                                          taken.predictions,
                                          taken.prediction_cost_ns,
                                          taken.target.limit_ns,
                                          taken.target.alone_ns,
                                          taken.target.kept,
                                          taken.target.jobs,
                                          taken.target.open_ns,
                                          taken.target.total_ns,
                                          taken.memory.held_bytes,
                                          taken.memory.peak_bytes,
                                          taken.memory.base_bytes,
                                          taken.memory.slope_bytes,
                                          taken.memory.refused_launches,
                                          taken.memory.refused_allocations,
                                          taken.memory.limit_bytes.value_or(0),
                                          taken.give.most,
                                          taken.give.closing,
                                          taken.give.windows,
                                          taken.give.open,
                                          taken.waits_for_gpu.items,
                                          taken.waits_for_gpu.items_ns,
                                          taken.waits_for_gpu.waited_ns}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                          23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33));
  EXPECT_TRUE(taken.give.known);
  EXPECT_EQ(taken.labels.front(), (std::pair<std::string, std::string>{"job", "a"}));
  EXPECT_EQ(taken.unhooked_name, "cuNew");
  EXPECT_FALSE(taken.active);
  EXPECT_EQ(taken.active_ns, 0U);
  EXPECT_EQ(taken.held_ns, 0U);
}

// Prevents: "held others for 20,000 days", by a client whose clock is shifted, or that lies.
TEST_F(Snapshots, NothingLastedLongerThanTheClientIsThere) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t age = random() % (kNow / 2);
    Slot& held = add_client(4, 0, "held");
    held.attached_ns.store(kNow - age);
    held.closed_ns.store(random() >> (random() % 64));
    held.closed_since_ns.store(random() % (2 * kNow));
    held.job.store(1);
    held.job_since_ns.store(random() % (2 * kNow));
    held.gate.store(bit(3));
    held.held_by_ns[3].store(random() >> (random() % 64));
    add_client(3, 9, "holder");
    const Snapshot taken = snapshot();
    const ClientSnapshot& client = taken.clients.back();
    EXPECT_LE(client.held_total_ns, age);
    EXPECT_LE(client.held_ns, age);
    EXPECT_LE(client.active_ns, age);
    for (const Wait& wait : client.held_by) EXPECT_LE(wait.ns, age);
    EXPECT_LE(held_others_ns(taken.clients.front()), age);
  }
}

// Prevents: steps that are missing in the figures, or counted as those of an idle client.
TEST_F(Snapshots, HaveTheLastSteps) {
  Slot& client = add_client(4, 7, "a");
  client.steps.add(5, false);
  client.steps.add(7, true);
  client.gpu_ns.store(9);
  client.gpu_bound_ns.store(8);
  client.target_jobs.store(10);
  client.target_kept.store(9);
  begin_target(client);
  client.target_jobs.fetch_add(3);
  client.target_kept.fetch_add(2);
  const ClientSnapshot taken = snapshot().clients.front();
  EXPECT_EQ(taken.steps.ended, 1U);
  EXPECT_EQ(taken.steps.total_ns, 7U);
  EXPECT_EQ(taken.steps.seen, 2U);
  EXPECT_THAT(taken.steps.recent_ns, ElementsAre(5, 7));
  EXPECT_EQ(taken.gpu_bound_ns, 8U);
  EXPECT_EQ(taken.target.jobs, 3U);
  EXPECT_EQ(taken.target.kept, 2U);
  EXPECT_EQ(taken.target.all_jobs, 13U);
  EXPECT_EQ(taken.target.all_kept, 11U);
}

// Prevents: a hostile writer of the node's board drives the terminal of root, who looks at it.
TEST_F(Snapshots, TextOfOthersIsMadePrintable) {
  add_client(3, 9, "\x1b]0;a\x07 b\xff");
  add_client(4, 0, "c");
  hold(3, 4, kNow - kMs);
  std::strcpy(board_->devices[0].name.data(), "GPU\n\xc2\x9b");
  const Snapshot taken = snapshot();
  EXPECT_EQ(taken.devices[0].name, "GPU??");
  EXPECT_EQ(taken.clients[0].command, "?]0;a? b?");
  EXPECT_EQ(taken.clients[0].name, "?]0;a?");
  EXPECT_EQ(taken.clients[1].holders.front().name, "?]0;a?");
}

// Prevents: a client that waits, or whose open job holds nobody yet, counts as idle.
TEST_F(Snapshots, StatesHaveNames) {
  const auto name = [&] { return state_name(snapshot().clients.front()); };
  Slot& client = add_client(0, 0, "a");
  EXPECT_EQ(name(), "idle");
  client.open_job.store(1);
  client.job_since_ns.store(kNow - 4);
  EXPECT_EQ(name(), "active");
  EXPECT_EQ(snapshot().clients.front().active_ns, 4U);
  client.gate.store(bit(kControllerBit));
  client.closed_since_ns.store(kNow - 3);
  EXPECT_EQ(name(), "held");
  EXPECT_EQ(snapshot().clients.front().held_ns, 3U);
  EXPECT_EQ(snapshot().clients.front().holders.front().name, "the controller");
  client.policy.store(Policy{PolicyKind::kNone, {}}.pack());
  EXPECT_EQ(name(), "active") << "nobody heeds the gate";
  const std::pair<SlotState, const char*> states[] = {{SlotState::kReserved, "starting"},
                                                      {SlotState::kLeaving, "leaving"},
                                                      {SlotState::kDead, "dead"}};
  for (const auto& [state, text] : states) {
    set_state(0, state, 0);
    EXPECT_EQ(name(), text);
  }
}

TEST(SnapshotNames, OfOrdersAndTargets) {
  EXPECT_EQ(order_name(MemoryOrder::kShrink), "shrink");
  EXPECT_EQ(order_name(MemoryOrder::kDrop), "drop");
  EXPECT_EQ(order_name(MemoryOrder::kSleep), "sleep");
  EXPECT_EQ(order_name(MemoryOrder::kEpoch), "epoch");
  EXPECT_EQ(order_name(MemoryOrder::kNone), "none");
  EXPECT_EQ(target_state_name(TargetState::kLearning), "learning");
  EXPECT_EQ(target_state_name(TargetState::kKept), "kept");
  EXPECT_EQ(target_state_name(TargetState::kMissed), "missed");
  EXPECT_EQ(target_state_name(TargetState::kNone), "none");
}

}  // namespace
}  // namespace sluice::shm
