// `sluice status` on boards made here: every state it has to tell apart.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/slice.hpp"
#include "shm/slice_answer.hpp"
#include "tests/support/board_test.hpp"
#include "tools/common/text.hpp"
#include "tools/status/format.hpp"
#include "tools/status/json.hpp"
#include "tools/status/look.hpp"

namespace sluice::tools {
namespace {

using test::kMs;
using test::kNow;

class Status : public test::BoardTest {
 protected:
  [[nodiscard]] shm::Snapshot snapshot() const { return shm::take_snapshot(*board_, kNow); }
  [[nodiscard]] std::string text() const { return status_text(snapshot(), "s"); }
  [[nodiscard]] std::string coverage() const { return coverage_text(snapshot()); }
};

void expect_says(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no \"" << words << "\" in:\n" << text;
}

TEST_F(Status, SaysWhetherItIsWorkingAtAll) {
  expect_says(text(), "session s: controller pid 7, heartbeat 5 ms ago\n");
  expect_says(text(),
              "GPU 0: Some GPU, GPU-00000000-0000-0000-0000-000000000000, slices: no answer yet\n");
  expect_says(text(), "no clients");
  board_->heartbeat_ns.store(kNow - 3000 * kMs);
  expect_says(text(), "controller pid 7 is dead or stopped (last heartbeat 3.0 s ago)");
  board_->controller_pid.store(0);
  expect_says(text(), "no controller (it left): new clients run ungated");
}

TEST_F(Status, SaysWhetherAGpuObeysTimeSlices) {
  const auto json = [&] { return status_object(snapshot(), "s")["devices"][0]["slices"]; };
  EXPECT_TRUE(json().is_null());
  board_->slice_answers[0].store(shm::SliceAnswer{shm::SliceAnswer::Kind::kObeyed, 260}.pack());
  expect_says(text(), ", slices: obeyed (0.26 ms)\n");
  EXPECT_EQ(json().dump(), R"({"obeyed":true,"job_us":260})");
  board_->slice_answers[0].store(shm::SliceAnswer{shm::SliceAnswer::Kind::kNotObeyed, 990}.pack());
  expect_says(text(), ", slices: not obeyed\n");
  EXPECT_EQ(json().dump(), R"({"obeyed":false,"job_us":990})");
  add_client(0, 0, "python train.py")
      .slice_state.store(static_cast<std::uint32_t>(shm::SliceState::kNotObeyed));
  expect_says(text(), "time slice of the driver: the GPU does not obey another");
}

// Prevents: clients that have been gone for long, said to run, on a board that nobody removed.
TEST_F(Status, KnowsADesertedBoardFromOneWithoutAController) {
  add_client(0, 0, "python train.py");
  add_client(3, 100, "python serve.py");
  shm::Snapshot beating = snapshot();
  EXPECT_TRUE(somebody_is_left(beating, [](std::uint32_t) { return false; }));
  EXPECT_EQ(beating.clients[0].state, shm::SlotState::kLive) << "a controller buries the dead";
  board_->heartbeat_ns.store(kNow - 3000 * kMs);
  shm::Snapshot silent = snapshot();
  EXPECT_TRUE(somebody_is_left(silent, [](std::uint32_t pid) { return pid == 7; }));
  board_->controller_pid.store(0);
  shm::Snapshot one = snapshot();
  EXPECT_TRUE(somebody_is_left(one, [](std::uint32_t pid) { return pid == 103; }));
  expect_says(status_text(one, "s"), "dead");
  shm::Snapshot none = snapshot();
  EXPECT_FALSE(somebody_is_left(none, [](std::uint32_t) { return false; }));
  EXPECT_TRUE(process_exists(static_cast<std::uint32_t>(getpid())));
}

TEST_F(Status, SaysWhyAClientWaits) {
  add_client(0, 0, "python train.py");
  add_client(3, 100, "python serve.py");
  hold(3, 0, kNow - 12 * kMs);
  expect_says(text(), "held for 12 ms by pid 103 (priority 100, serve.py)");
  expect_says(text(), "active 12ms");
  add_client(62, 101, "other");
  hold(62, 0, kNow - 12 * kMs);
  expect_says(status_text(snapshot(), "s", 100), "serve.py) and pid 162 (priority 101, other)");
}

// A gate that a holder closed just before its client left is no reason for anything.
TEST_F(Status, ALeavingClientIsNotHeld) {
  add_client(0, 0, "a");
  add_client(1, 9, "b");
  hold(1, 0, kNow - kMs);
  set_state(0, shm::SlotState::kLeaving, 0);
  expect_says(text(), "leaving");
  EXPECT_EQ(text().find("held for"), std::string::npos) << text();
}

// Prevents: nobody learns that a policy does not bound what its program queues.
TEST_F(Status, SaysThatWaitsWereSkipped) {
  EXPECT_EQ(text().find("skipped"), std::string::npos);
  add_client(0, 0, "a").skipped_waits.store(2);
  expect_says(text(), "skipped 2 waits of its policy: the GPU was not done after 5 s");
}

// Prevents: nobody sees why a critical program that works holds nobody.
TEST_F(Status, SaysThatStreamsMakeNoProgress) {
  shm::Slot& client = add_client(0, 1, "a");
  EXPECT_EQ(text().find("progress"), std::string::npos);
  const auto shown = [this] {
    return nlohmann::json::parse(status_json(snapshot(), "s"))["clients"][0]["stalled_streams"];
  };
  EXPECT_EQ(shown(), 0);
  client.stalled_streams.store(1);
  expect_says(text(), "^ 1 stream makes no progress, and holds nobody until it does\n");
  client.stalled_streams.store(2);
  expect_says(text(), "^ 2 streams make no progress, and hold nobody until they do\n");
  EXPECT_EQ(shown(), 2);
}

// Prevents: nobody sees when gates close, or what that costs.
TEST_F(Status, SaysWhenGatesClose) {
  shm::Slot& client = add_client(0, 1, "a");
  const auto close = [&](shm::CloseState state, std::uint8_t level) {
    client.close_state.store(shm::CloseWord{state, level}.pack());
  };
  EXPECT_EQ(text().find("gates"), std::string::npos);
  close(shm::CloseState::kClosesAtFirst, 0);
  expect_says(text(), "closes gates at the first launch of a job\n");
  client.close_low_us.store(static_cast<std::uint32_t>(-10));
  client.close_high_us.store(30);
  close(shm::CloseState::kLearning, 3);
  expect_says(text(), "tries to close gates after 3/8 of a job\n");
  expect_says(text(), "its jobs wait -0.01 to 0.03 ms longer for that\n");
  close(shm::CloseState::kClosesLater, 8);
  expect_says(text(), "closes gates when it waits for a job\n");
  close(shm::CloseState::kStaysOpen, shm::CloseWord::kNeverLevel);
  expect_says(text(), "gates stay open: closing them brings nothing\n");
  const auto json = nlohmann::json::parse(status_json(snapshot(), "s"))["clients"][0]["closing"];
  EXPECT_EQ(json["state"], "open");
  EXPECT_EQ(json["level"], 9);
  EXPECT_EQ(json["waits_longer_us"], (nlohmann::json{-10, 30}));
}

// Prevents: only durations are shown, and the noise of the host hides what a program pays.
TEST_F(Status, SaysHowLongJobsWaitForTheGpu) {
  shm::Slot& client = add_client(0, 1, "a");
  client.items.store(200);
  client.items_ns.store(4'000'000'000);
  client.items_waited_ns.store(4'000'000);
  EXPECT_EQ(text().find("waits for the GPU"), std::string::npos) << "it may poll";
  client.items_waited_ns.store(62'000'000);
  expect_says(text(), "waits for the GPU for 310us in each job, 1.6 % of it\n");
  client.steps.ended.store(5);
  expect_says(text(), "waits for the GPU for 310us in each step, 1.6 % of it\n");
  EXPECT_EQ(
      nlohmann::json::parse(status_json(snapshot(), "s"))["clients"][0]["waits"],
      (nlohmann::json{{"items", 200}, {"items_ns", 4'000'000'000}, {"waited_ns", 62'000'000}}));
  client.items_waited_ns.store(9'000'000'000);  // of a moment between two words
  expect_says(text(), "100.0 % of it\n");
}

// Prevents: nobody sees what a critical program pays for those below it, or how much it may.
TEST_F(Status, SaysWhatAProgramGives) {
  shm::Slot& client = add_client(0, 1, "a");
  add_client(1, 0, "b");
  const auto json = [this] {
    return nlohmann::json::parse(status_json(snapshot(), "s"))["clients"][0]["give"];
  };
  client.gives_closing.store(999);  // of a moment at which nothing is known
  EXPECT_EQ(text().find("gives"), std::string::npos);
  EXPECT_EQ(json()["most"], 0.05);
  EXPECT_TRUE(json()["given"].is_null());
  client.gives_known.store(1);
  client.gives_closing.store(120);
  client.gives_windows.store(190);
  expect_says(text(), "gives 3.1 of 5 %: gates close late (1.2 %), windows (1.9 %)\n");
  EXPECT_EQ(json()["given"],
            (nlohmann::json{{"closing", 0.012}, {"windows", 0.019}, {"open", 0.0}}));
  client.gives_open.store(30);
  expect_says(text(), "gives 3.4 of 5 %: gates close late (1.2 %), windows (1.9 %)\n");
  expect_says(text(), " gates stay open (0.3 %)\n");
  client.gives_closing.store(0);
  client.gives_windows.store(0);
  client.gives_open.store(444);
  client.requested_give.store(shm::pack_give(25));
  expect_says(text(), "gives 4.4 of 2.5 %: gates stay open (4.4 %)\n");
  EXPECT_EQ(json()["most"], 0.025);
  client.gives_open.store(0);
  expect_says(text(), "gives 0 of 2.5 %\n");
}

TEST_F(Status, SaysThatAProgramGivesNothing) {
  add_client(0, 1, "a").requested_give.store(shm::pack_give(0));
  shm::Slot& below = add_client(1, 0, "b");
  EXPECT_EQ(text().find("gives"), std::string::npos) << "it has held nobody";
  below.held_by_ns[0].store(kMs);
  expect_says(text(), "gives nothing (--give 0)\n");
}

// Prevents: a program without a short slice, and nobody sees why.
TEST_F(Status, SaysWhichTimeSliceIsSetAndWhyNot) {
  shm::Slot& client = add_client(0, 0, "a");
  const auto state_is = [&](shm::SliceState state) {
    client.slice_state.store(static_cast<std::uint32_t>(state));
  };
  EXPECT_EQ(text().find("time slice"), std::string::npos);
  client.slice_us.store(100);
  state_is(shm::SliceState::kShort);
  expect_says(text(), "time slice 100us");
  client.slice_us.store(0);
  state_is(shm::SliceState::kSeveral);
  expect_says(text(), "time slice of the driver: several programs are busy, and one of th");
  state_is(shm::SliceState::kOutside);
  expect_says(text(), "time slice of the driver: programs outside Sluice use the GPU");
  state_is(shm::SliceState::kRefused);
  expect_says(text(), "time slice of the driver: the system refuses to set it");
  client.slice_us.store(100);
  expect_says(text(), "time slice 100us: the system refuses to set another");
  client.slice_us.store(0);
  client.requested_slice.store(shm::kSliceOff);
  state_is(shm::SliceState::kOff);
  expect_says(text(), "asked for time slice off, has the driver's (off)");
}

// Prevents: a program that waits for its turn, and nobody sees for whom.
TEST_F(Status, SaysWhoHasTheTurn) {
  shm::Slot& one = add_client(0, 0, "one");
  shm::Slot& other = add_client(1, 0, "other");
  one.requested_weight.store(3);
  expect_says(text(), "weight 3\n");
  one.turn.takes.store(1);
  other.turn.takes.store(1);
  one.turn.until_ns.store(kNow + kMs);
  other.job.store(1);
  other.gate.store(shm::bit(1));
  other.closed_since_ns.store(kNow - 4 * kMs);
  expect_says(text(), "weight 3, has the turn");
  expect_says(text(), "no weight (1), waits for its turn");
  expect_says(text(), "held for 4 ms by pid 100 (priority 0, one)");
  one.turn.until_ns.store(kNow - kMs);  // void
  expect_says(text(), "held for 4 ms by a change of turns");
  other.held_by_ns[1].store(70 * kMs);
  const shm::Snapshot now = snapshot();
  EXPECT_EQ(now.clients[1].held_by[0].name, "the turns of others");
  EXPECT_TRUE(now.clients[1].held_others.empty()) << "it does not hold itself";
}

TEST_F(Status, TellsThePolicyInForceFromTheOneAskedFor) {
  add_client(0, 0, "a").policy.store(
      shm::Policy{shm::PolicyKind::kEvent, shm::Spacing::launches(2)}.pack());
  expect_says(text(), "event:2");
  expect_says(text(), "asked for policy device:200us, which its device cannot do");
}

TEST_F(Status, SaysWhetherPredictionsPay) {
  shm::Slot& client = add_client(0, 9, "a");
  EXPECT_EQ(text().find("predicts"), std::string::npos);
  client.predictions.store(1234);
  client.prediction_hits.store(1200);
  client.prediction_cost_ns.store(std::uint64_t{1234} * 210'000);
  expect_says(text(), "predicts its jobs: 97 % of 1234 came, 210 us of closed gates each");
  const auto json = nlohmann::json::parse(status_json(snapshot(), "s"));
  EXPECT_EQ(json["clients"][0]["predicted_hits"], 1200);
}

TEST_F(Status, NamesEveryState) {
  add_client(0, 0, "a");
  for (const auto& [state, name] : {std::pair{shm::SlotState::kReserved, "starting"},
                                    {shm::SlotState::kLive, "idle"},
                                    {shm::SlotState::kLeaving, "leaving"},
                                    {shm::SlotState::kDead, "dead"}}) {
    set_state(0, state, 0);
    expect_says(text(), name);
  }
  set_state(0, shm::SlotState::kFree, 0);  // between hands: `used` is a superset
  expect_says(text(), "no clients");
}

// Prevents: workers of a run that look alike because their commands are cut where they differ.
TEST_F(Status, AtEightyColumnsEveryClientIsKnownByItsName) {
  const std::string command = "sluice-worker-torch --name critical /tmp/run/experiment.json";
  set_name(add_client(0, 0, command.c_str()), "best_effort");
  set_name(add_client(1, 2, command.c_str()), "most_critical");
  set_name(add_client(2, 1, command.c_str()), "critical");
  const std::string narrow = status_text(snapshot(), "s", 80);
  expect_says(narrow, "HELD  NAME\n");
  expect_says(narrow, "0us  most_critical\n");
  EXPECT_LT(narrow.find("most_critical\n"), narrow.find(" critical\n")) << narrow;
  EXPECT_LT(narrow.find(" critical\n"), narrow.find("best_effort\n")) << narrow;
  EXPECT_EQ(narrow.find("sluice-worker"), std::string::npos) << narrow;
  expect_says(status_text(snapshot(), "s", 120),
              "best_effort    sluice-worker-torch --name critical /tmp/...\n");
  expect_says(status_text(snapshot(), "s", 1000), "best_effort    " + command + "\n");
  expect_says(coverage(), "(most_critical, priority 2, device:200us): 0 launches");
}

TEST_F(Status, ClientsAreByDeviceThenPriorityThenPid) {
  add_client(0, 0, "a").pid.store(900);
  add_client(1, 9, "b").info.store(shm::SlotInfo{shm::SlotState::kLive, 9, 1, 1}.pack());
  add_client(2, 0, "c");
  add_client(3, 1, "d");
  std::vector<std::string> names;
  for (const shm::ClientSnapshot& client : snapshot().clients) names.push_back(client.name);
  EXPECT_EQ(names, (std::vector<std::string>{"d", "c", "a", "b"}));
}

// Prevents: starvation without a word, where one client does not pace and another one does.
TEST_F(Status, WarnsOfAClientThatRunsUngatedNextToOneThatPaces) {
  const std::string warning = "^ runs ungated: jobs of higher priority take turns with it";
  add_client(0, 0, "a").policy.store(shm::Policy{}.pack());
  slot(0).requested_policy.store(shm::Policy{}.pack());
  EXPECT_EQ(text().find(warning), std::string::npos) << "nobody is next to it";
  shm::Slot& other = add_client(1, 1, "b");
  expect_says(text(), warning);
  other.policy.store(shm::Policy{shm::PolicyKind::kGate, {}}.pack());
  EXPECT_EQ(text().find(warning), std::string::npos) << "a gate on the host does not pace";
  other.policy.store(shm::kDefaultPolicy.pack());
  other.info.store(shm::SlotInfo{shm::SlotState::kLive, 1, 1, 1}.pack());
  EXPECT_EQ(text().find(warning), std::string::npos) << "on another GPU";
}

// A held time that stood still while a client is held would hide the one case that matters.
TEST_F(Status, HeldTimeRunsOnDuringAHold) {
  shm::Slot& client = add_client(0, 0, "a");
  add_client(1, 1, "b");
  client.job.store(1);
  client.closed_ns.store(100 * kMs);
  EXPECT_EQ(snapshot().clients[1].held_total_ns, 100 * kMs);
  hold(1, 0, kNow - 50 * kMs);
  EXPECT_EQ(snapshot().clients[1].held_total_ns, 150 * kMs);
}

// Prevents: a total that is 0 under policy none and comes back with the next policy.
TEST_F(Status, HeldTimeNeverGoesBack) {
  shm::Slot& client = add_client(0, 0, "a");
  add_client(1, 1, "b");
  client.job.store(1);
  client.closed_ns.store(100 * kMs);
  hold(1, 0, kNow - 50 * kMs);
  client.policy.store(0);
  const shm::ClientSnapshot none = snapshot().clients[1];
  EXPECT_EQ(none.held_total_ns, 100 * kMs);
  EXPECT_TRUE(none.holders.empty()) << "nobody is held under policy none";
}

// Prevents: nobody can look, because one client has a name that has more bytes than columns.
TEST_F(Status, ANameOfManyBytesFitsEveryWidth) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::string name = "x";
  for (int i = 0; i < 18; ++i) name += "\u20ac";
  test::BoardTest::set_name(add_client(0, 0, "python train.py --epochs 90 --batch-size 256"), name);
  for (std::size_t columns = 80; columns < 160; ++columns) {
    std::istringstream lines(status_text(snapshot(), "s", columns));
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" x\u20ac") != std::string::npos) {
        EXPECT_LE(columns_of(line), columns) << line;
      }
    }
  }
  std::setlocale(LC_CTYPE, "C");
}

TEST_F(Status, CoverageAddsUpAndNamesTheReasons) {
  shm::Slot& client = add_client(0, 0, "a");
  client.entries[0][shm::Count::kGated].store(90);
  client.entries[0][shm::Count::kWaited].store(20);
  client.entries[0][shm::Count::kHeldNs].store(30 * kMs);
  client.entries[0][shm::Count::kBypassUnattached].store(4);
  client.entries[6][shm::Count::kCaptured].store(5);
  client.entries[6][shm::Count::kBypassRefusedWait].store(1);
  client.unhooked_lookups.store(2);
  std::strcpy(client.unhooked_name.data(), "cuLaunchGrid");
  const shm::Snapshot taken = snapshot();
  EXPECT_EQ(taken.clients[0].launches, 100U);
  EXPECT_EQ(taken.clients[0].bypassed, 5U);
  EXPECT_EQ(taken.clients[0].waits, 20U);
  expect_says(coverage(), "100 launches, 5 bypassed of those that were seen\n");
  expect_says(coverage(), "cuLaunchKernel ");
  expect_says(coverage(), "4 not attached");
  expect_says(coverage(), "cuGraphLaunch ");
  expect_says(coverage(), "1 the driver refused the wait");
  expect_says(coverage(), "ungated: launches by cuLaunchGrid, which has no hook");
  client.unhooked_lookups.store(0);
  expect_says(coverage(), "100 launches, 5 bypassed\n");
}

// Prevents: a status that is silent about launches, of which nobody knows whether they were held.
TEST_F(Status, SaysWhetherLaunchesWentPastTheGates) {
  EXPECT_EQ(text().find("past a gate"), std::string::npos) << "nobody has launched";
  shm::Slot& client = add_client(0, 0, "a");
  client.entries[0][shm::Count::kGated].store(90);
  client.entries[6][shm::Count::kCaptured].store(6);
  add_client(1, 0, "b").entries[0][shm::Count::kGated].store(300);
  expect_says(text(), "\n396 launches: none went past a gate\n");
  client.entries[0][shm::Count::kBypassUnattached].store(4);
  expect_says(text(), "\n400 launches: 4 (1 %) went past a gate\n");
  client.unhooked_lookups.store(1);
  expect_says(text(), "\n400 launches: 4 (1 %) went past a gate, of those that were seen\n");
}

// Prevents: "220 launches, 0 bypassed" of a program that made 3,800 (a library opened with
// RTLD_DEEPBIND launched the rest).
TEST_F(Status, NeverShowsABareZeroWhereLaunchesMayPassBy) {
  shm::Slot& client = add_client(0, 0, "a");
  client.entries[0][shm::Count::kGated].store(220);
  client.unhooked_lookups.store(1);
  std::strcpy(client.unhooked_name.data(), "libwork.so");
  const std::string why =
      "some launches may pass by: libwork.so was opened with RTLD_DEEPBIND or dlmopen";
  expect_says(coverage(), "220 launches, 0 bypassed of those that were seen\n  " + why);
  expect_says(status_text(snapshot(), "s", 200), why);
}

// Prevents: launches that no gate held, without a word in `status`.
TEST_F(Status, ExplainsLaunchesThatWereNotGated) {
  shm::Slot& client = add_client(0, 0, "a");
  client.entries[0][shm::Count::kGated].store(900);
  EXPECT_EQ(text().find("ungated"), std::string::npos) << text();
  client.entries[0][shm::Count::kBypassUnattached].store(60);
  client.entries[1][shm::Count::kBypassUnattached].store(39);
  client.entries[6][shm::Count::kBypassRefusedWait].store(1);
  const std::string wide = status_text(snapshot(), "s", 120);
  expect_says(wide, "99 launches (10 %) ungated: not attached; start its controller first: ");
  expect_says(wide, " 1 launch (below 1 %) ungated: the driver refused the wait; sluice set 100 ");
  expect_says(text(), "ungated: not attached\n             start its controller first: ");
  client.entries[0][shm::Count::kGated].store(0);
  client.entries[6][shm::Count::kBypassRefusedWait].store(0);
  expect_says(text(), "99 launches (all) ungated: not attached");
  client.unhooked_lookups.store(2);
  std::strcpy(client.unhooked_name.data(), "cuLaunchGrid");
  expect_says(text(), "ungated: launches by cuLaunchGrid, which has no hook");
}

TEST_F(Status, SaysHowToGateAClientUnderPolicyNone) {
  shm::Slot& client = add_client(0, 0, "a");
  client.policy.store(shm::Policy{}.pack());
  client.entries[0][shm::Count::kBypassPolicyNone].store(5);
  expect_says(
      text(),
      "5 launches (all) ungated: policy none\n             sluice set 100 --policy device:200us\n");
  client.policy.store(shm::kDefaultPolicy.pack());
  expect_says(text(), "policy none; it has another policy now");
}

shm::Snapshot with_outside(shm::Snapshot snapshot, std::vector<shm::OutsideProcess> outside) {
  snapshot.outside = std::move(outside);
  return snapshot;
}

TEST_F(Status, NamesTheProcessesOutside) {
  add_client(0, 0, "a");
  constexpr std::uint64_t kMiB = 1U << 20U;
  const shm::Snapshot taken = with_outside(
      snapshot(), {{0, 0, "", {}, false},
                   {0, 11, "small", 300 * kMiB, false},
                   {0, 12, "python serve.py", {}, true},
                   {0, 4242, "python train.py --data /a/long/path/to/data", 1229 * kMiB, false}});
  const std::string said = status_text(taken, "s");
  expect_says(said,
              "not under Sluice: pid 4242 (python train....), 1.2 GiB: no policy holds its work\n");
  expect_says(status_text(taken, "s", 200), "(python train.py --data /a/long/path/to/data), ");
  expect_says(said, "not under Sluice: pid 11 (small), 300 MiB: no policy holds its work\n");
  expect_says(said, "without a slot here: pid 12 (python serve.py): no policy holds its work\n");
  expect_says(said, "not in this session: 1 process whose pid is not visible here\n");
  EXPECT_LT(said.find("pid 4242"), said.find("pid 11 ")) << "the largest first";
  const auto outside = nlohmann::json::parse(status_json(taken, "s"))["outside"];
  EXPECT_TRUE(outside[0]["pid"].is_null() && outside[0]["memory_bytes"].is_null());
  EXPECT_EQ(outside[1]["memory_bytes"], 300 * kMiB);
  EXPECT_EQ(outside[2]["preloaded"], true);
  EXPECT_EQ(outside[3]["pid"], 4242);
  EXPECT_EQ(text().find("not under"), std::string::npos);
}

// Prevents: a page of warnings on a GPU that many others use.
TEST_F(Status, CountsTheManyOutside) {
  std::vector<shm::OutsideProcess> many;
  for (std::uint32_t pid = 1; pid <= 9; ++pid) many.push_back({0, pid, "x", {}, false});
  expect_says(status_text(with_outside(snapshot(), many), "s"), "and 5 more without a slot\n");
}

// What may stand in front of a critical job beyond the spacing.
TEST_F(Status, TellsWhatWasLearned) {
  shm::Slot& client = add_client(0, 0, "a");
  client.unknown_launches.store(12);
  expect_says(text(), "12 launches of unknown duration got a wait each");
  client.unknown_launches.store(1);
  expect_says(text(), " 1 launch of unknown duration");
  client.longest_launch_ns.store(1400 * 1000);
  client.ungated_graph_ns.store(72 * kMs);
  expect_says(text(), "longest launch without a wait inside: 1.4 ms");
  expect_says(text(), "72 ms");
}

TEST_F(Status, JsonHoldsAllOfIt) {
  shm::Slot& first = add_client(0, 0, "caf\xc3");  // cut in a character
  first.entries[0][shm::Count::kGated].store(3);
  first.longest_launch_ns.store(5);
  first.ungated_graph_ns.store(6);
  first.unknown_launches.store(7);
  add_client(1, 1, "b");
  hold(1, 0, kNow - kMs);
  board_->max_hold_ns.store(7);
  const auto json = nlohmann::json::parse(status_json(snapshot(), "s"));
  EXPECT_EQ(json["session"], "s");
  EXPECT_EQ(json["controller"]["max_hold_ns"], 7);
  EXPECT_EQ(json["controller"]["pid"], 7);
  EXPECT_EQ(json["controller"]["alive"], true);
  EXPECT_EQ(json["clients"][1]["state"], "held");
  EXPECT_EQ(json["clients"][1]["held_by"][0]["pid"], 101);
  EXPECT_EQ(json["clients"][1]["coverage"][0]["entry"], "cuLaunchKernel");
  EXPECT_EQ(json["clients"][1]["coverage"][0]["gated"], 3);
  EXPECT_EQ(json["clients"][1]["longest_ns"], 5);
  EXPECT_EQ(json["clients"][1]["ungated_graph_ns"], 6);
  EXPECT_EQ(json["clients"][1]["unknown_launches"], 7);
  EXPECT_EQ(json["clients"][0]["state"], "active");
}

// The output is for a terminal: a long command or a full field must not break its lines.
TEST_F(Status, LinesFitATerminal) {
  const std::string long_command(shm::Slot{}.command.size(), 'x');  // no NUL at all
  for (const int index : {0, 62}) {
    shm::Slot& client = add_client(index, 255, long_command.c_str());
    client.pid.store(4194304);
    client.policy.store(
        shm::Policy{shm::PolicyKind::kDevice, shm::Spacing::launches(1'000'000)}.pack());
    client.requested_policy.store(client.policy.load());
    for (shm::EntryCounters& entry : client.entries) {
      entry[shm::Count::kGated].store(99'999'999);
      entry[shm::Count::kWaited].store(1'000'000);
      entry[shm::Count::kHeldNs].store(3'600'000 * kMs);
    }
  }
  set_state(0, shm::SlotState::kLive, 0);
  hold(62, 0, kNow - 10 * kMs);
  std::istringstream lines(status_text(snapshot(), "s", 100) + coverage());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  std::istringstream narrow(text());
  for (std::string line; std::getline(narrow, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace
}  // namespace sluice::tools
