// What `sluice status` and `sluice top` say about targets, labels, GPU time and waits.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shm/memory.hpp"
#include "shm/target.hpp"
#include "tests/support/board_test.hpp"
#include "tools/status/format.hpp"
#include "tools/top/frame.hpp"
#include "tools/top/json.hpp"

namespace sluice::tools {
namespace {

using test::kMs;
using test::kNow;

class Use : public test::BoardTest {
 protected:
  [[nodiscard]] shm::Snapshot snapshot() const { return shm::take_snapshot(*board_, kNow); }
  [[nodiscard]] std::string text() const { return status_text(snapshot(), "s"); }
  [[nodiscard]] nlohmann::json json() const {
    return nlohmann::json::parse(status_json(snapshot(), "s"));
  }
  [[nodiscard]] View view() const { return make_view(std::nullopt, snapshot()); }
  [[nodiscard]] std::string top(std::size_t columns, const Controls& controls = {}) const {
    return plain_text(make_frame(view(), "s", {columns, 0}, controls));
  }
  shm::Slot& add_target(int index, const char* target) {
    shm::Slot& client = add_client(index, 5, "python serve.py");
    client.target.store(shm::parse_target(target)->pack());
    client.requested_target.store(client.target.load());
    client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kKept));
    return client;
  }
};

void expect_says(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no \"" << words << "\" in:\n" << text;
}
void expect_silent(const std::string& text, const std::string& words) {
  EXPECT_EQ(text.find(words), std::string::npos) << "\"" << words << "\" in:\n" << text;
}

// Prevents: lines without content, for users who asked for nothing of this.
TEST_F(Use, IsSilentWhereThereIsNothingToSay) {
  add_client(0, 0, "a");
  const std::string both = text() + top(200);
  for (const char* word :
       {"target", "TARGET", "label", "gpu ", "GPU%", "waited", "held others", "memory", "MEM"}) {
    expect_silent(both, word);
  }
  const auto client = json()["clients"][0];
  EXPECT_TRUE(client["target"].is_null() && client["gpu_ns"].is_null());
  EXPECT_TRUE(client["labels"].is_object() && client["labels"].empty());
  EXPECT_EQ(client["held_others_ns"], 0);
}

TEST_F(Use, ShowsTheTargetAndHowItIsKept) {
  shm::Slot& client = add_target(0, "p99=50ms");
  expect_says(text(), "           target p99=50ms\n");
  client.target_jobs.store(812);
  client.target_kept.store(807);
  client.job_times.ended.store(812);
  client.job_times.total_ns.store(5000 * kMs);  // also of jobs before the target was set
  client.target_total_ns.store(1000 * kMs);
  client.open_ns.store(630 * kMs);
  expect_says(status_text(snapshot(), "s", 100),
              "target p99=50ms: 99.4 % of 812 jobs in time; gates open for 63 % of their time\n");
  expect_says(text(),
              "           target p99=50ms: 99.4 % of 812 jobs in time\n"
              "             gates open for 63 % of their time\n");
  client.target_jobs.store(10'000);
  client.target_kept.store(9'999);
  expect_says(text(), ": 99.9 % of 10000 jobs");
  client.target_jobs.store(812);
  client.target_kept.store(812);
  expect_says(text(), ": 100 % of 812 jobs");
  client.open_ns.store(2000 * kMs);  // a job that runs is not among the ended ones
  expect_says(text(), "gates open for 100 % of their time\n");
}

TEST_F(Use, SaysWhatATimesAloneTargetMeans) {
  shm::Slot& client = add_target(0, "p99=1.2x");
  client.target_ns.store(60 * kMs);
  expect_says(text(), "target p99=1.2x (60 ms)\n");
}

// Prevents: a user who waits for a target to work that cannot, without a word.
TEST_F(Use, WarnsOfATargetThatDoesNotWork) {
  shm::Slot& client = add_target(0, "p99=5ms");
  expect_silent(text(), "^ target");
  client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kLearning));
  const std::string learning = "target: learning how long its jobs take alone";
  expect_says(text(), "^ " + learning);
  expect_says(top(100), learning);
  expect_says(top(100), "p99=5ms learn ");
  client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kMissed));
  expect_says(text(), "^ target cannot be kept; gates close at once, as without one\n");
  client.alone_ns.store(9 * kMs);
  expect_says(
      text(),
      "^ target cannot be kept: its jobs take 9 ms alone\n             gates close at once, ");
  // Prevents: a target that is kept said to be one that cannot be.
  client.target_ns.store(15 * kMs);
  expect_says(text(), "^ target too tight: jobs take 9 ms alone, some over 6 ms longer\n");
  client.target_ns.store(5 * kMs);
  expect_says(text(), "^ target cannot be kept: its jobs take 9 ms alone");
  expect_says(top(100), "p99=5ms missed");
  client.requested_target.store(0);
  expect_says(text(), "^ asked for target none, which it has not taken up yet\n");
  client.target_state.store(77);
  client.requested_target.store(client.target.load());
  expect_silent(text(), "^ target");
}

// Prevents: a wait for a learning that never ends.
TEST_F(Use, WarnsOfATargetAtPriorityZero) {
  shm::Slot& client = add_client(0, 0, "python train.py");
  client.target.store(shm::parse_target("p99=5ms")->pack());
  client.requested_target.store(client.target.load());
  client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kLearning));
  expect_says(text(), "^ target: no effect at priority 0");
}

// Prevents: a critical program that is said to be idle while its job runs with open gates.
TEST_F(Use, AJobWithOpenGatesIsActiveAndSaysSo) {
  shm::Slot& client = add_target(0, "p99=50ms");
  client.job_since_ns.store(kNow - 12 * kMs);
  client.open_job.store(3);
  expect_says(text(), " open 12ms ");
  expect_says(top(100), " open 12ms ");
  const auto shown = json()["clients"][0];
  EXPECT_EQ(shown["state"], "active");
  EXPECT_EQ(shown["active_ns"], 12 * kMs);
  EXPECT_EQ(shown["target"]["gates_open"], true);
  client.open_job.store(4);
  client.job.store(1);
  expect_says(text(), " active 12ms ");
  EXPECT_EQ(json()["clients"][0]["target"]["gates_open"], false);
}

// Prevents: an order that nobody obeys, and nobody sees.
TEST_F(Use, ShowsWhatItHoldsAndWhatItIsOrderedToDo) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
  shm::Slot& train = add_client(0, 0, "python train.py");
  train.memory.held.store(3174 * kMiB);
  expect_says(text(), "           memory 3.1 GiB\n");
  expect_silent(top(100), "MEM");
  EXPECT_EQ(json()["clients"][0]["memory"]["held_bytes"], 3174 * kMiB);
  EXPECT_TRUE(json()["clients"][0]["memory"]["grant_bytes"].is_null());
  EXPECT_TRUE(json()["clients"][0]["memory"]["order"].is_null());

  shm::Slot& serve = add_client(1, 1, "sluice serve");
  serve.alive.initialise();
  ASSERT_TRUE(serve.alive.take());
  const shm::SlotOf broker{1, 1};
  shm::set_grant(*board_, broker, {0, 1}, 512 * kMiB);
  const std::uint64_t order = shm::give_order(*board_, broker, {0, 1}, shm::MemoryOrder::kDrop);
  train.memory.order_ns.store(kNow - 3 * kMs);
  train.memory.base.store(100 * kMiB);
  train.memory.slope.store(20 * kMiB);
  expect_says(status_text(snapshot(), "s", 120),
              "memory 3.1 GiB of 512 MiB granted, needs 100 MiB and 20 MiB per item; ordered to "
              "drop 3 ms ago\n");
  expect_says(top(100), " 3.1G/512M! ");
  const auto shown = json()["clients"][1]["memory"];
  EXPECT_EQ(shown["grant_bytes"], 512 * kMiB);
  EXPECT_EQ(shown["order"], "drop");
  EXPECT_EQ(shown["order_age_ns"], 3 * kMs);
  EXPECT_EQ(shown["slope_bytes"], 20 * kMiB);
  shm::note_obeyed(train.memory, shm::Order::unpack(order).epoch);
  train.memory.refused.store(2);
  expect_says(status_text(snapshot(), "s", 120), "per item, 2 launches refused\n");
  expect_says(top(100), " 3.1G/512M ");
  serve.alive.release();
  expect_silent(text(), "granted");  // the broker is dead
}

// Prevents: a program that fails for its limit, and nobody sees which.
TEST_F(Use, ShowsItsLimitAndWhatThatRefused) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
  shm::Slot& train = add_client(0, 0, "python train.py");
  EXPECT_TRUE(json()["clients"][0]["memory"]["limit_bytes"].is_null());
  train.memory_limit.store(2048 * kMiB);
  expect_says(text(), "           memory 0 MiB, limit 2.0 GiB\n");
  expect_says(top(100), " 0M/2.0G ");
  train.memory.held.store(512 * kMiB);
  train.memory.refused_allocations.store(1);
  expect_says(text(), "           memory 512 MiB, limit 2.0 GiB, 1 allocation refused\n");
  expect_says(top(100), " 512M/2.0G ");
  EXPECT_EQ(json()["clients"][0]["memory"]["limit_bytes"], 2048 * kMiB);
  EXPECT_EQ(json()["clients"][0]["memory"]["refused_allocations"], 1);
  shm::Slot& serve = add_client(1, 1, "sluice serve");
  serve.alive.initialise();
  ASSERT_TRUE(serve.alive.take());
  shm::set_grant(*board_, {1, 1}, {0, 1}, 900 * kMiB);
  expect_says(text(), "memory 512 MiB of 900 MiB granted, limit 2.0 GiB, 1 allocation");
  expect_says(top(100), " 512M/900M ");
  shm::set_grant(*board_, {1, 1}, {0, 1}, 4096 * kMiB);
  expect_says(top(100), " 512M/2.0G ");
  serve.alive.release();
}

TEST_F(Use, SaysWhoWaitedForWhom) {
  shm::Slot& low = add_client(0, 0, "train");
  add_client(3, 5, "serve");
  add_client(4, 6, "api");
  low.held_by_ns[3].store(3400 * kMs);
  low.held_by_ns[4].store(9000 * kMs);
  low.held_by_ns[9].store(700 * kMs);  // slot 9 is free: its client has ended
  low.held_by_ns[shm::kControllerBit].store(100 * kMs);
  low.closed_ns.store(13200 * kMs);
  slot(3).held_by_ns[4].store(2 * kMs);
  slot(3).closed_ns.store(2 * kMs);
  expect_says(status_text(snapshot(), "s", 200),
              "waited for api (pid 104) 9.0 s, serve (pid 103) 3.4 s, the controller 100 ms "
              "and 1 more\n");
  low.held_by_ns[shm::kControllerBit].store(0);
  expect_says(status_text(snapshot(), "s", 200),
              "serve (pid 103) 3.4 s, clients that ended 800 ms\n");
  expect_says(text(), "held others: train (pid 100) 9.0 s, serve (pid 103) 2 ms\n");
  expect_says(text(), "held others: train (pid 100) 3.4 s\n");
  const auto clients = json()["clients"];
  EXPECT_EQ(clients[0]["name"], "api");
  EXPECT_EQ(clients[0]["held_others_ns"], 9002 * kMs);
  EXPECT_EQ(clients[2]["held_total_by"][1]["pid"], 103);
  EXPECT_EQ(clients[2]["held_total_by"][1]["ns"], 3400 * kMs);
  EXPECT_EQ(clients[2]["held_by_ended_ns"], 800 * kMs);
}

// A hold that lasts counts already, or the client that matters now would be missing.
TEST_F(Use, AHoldThatLastsCounts) {
  add_client(0, 0, "train").job.store(1);
  add_client(3, 5, "serve");
  hold(3, 0, kNow - 50 * kMs);
  expect_says(text(), "waited for serve (pid 103) 50 ms\n");
  expect_says(text(), "held others: train (pid 100) 50 ms\n");
}

TEST_F(Use, ShowsLabelsAndTheEstimateOfGpuTime) {
  shm::Slot& client = add_client(0, 0, "train");
  std::strcpy(client.label.data(), "team=vision,job=4711");
  client.gpu_ns.store(12'300 * kMs);
  client.attached_ns.store(kNow - 20'000 * kMs);
  expect_says(text(), "           labels team=vision job=4711\n");
  expect_says(text(), "           gpu ~12.3 s (an estimate from learned durations)\n");
  client.gpu_bound_ns.store(3'000 * kMs);
  expect_says(text(), "  gpu at most 12.3 s (its work was only measured next to other work)\n");
  EXPECT_EQ(json()["clients"][0]["gpu_bound_ns"], 3'000 * kMs);
  const auto shown = json()["clients"][0];
  EXPECT_EQ(shown["labels"]["team"], "vision");
  EXPECT_EQ(shown["gpu_ns"], 12'300 * kMs);
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(top_json(view(), "s"))["clients"][0]["gpu_share"], 0.615);
  add_client(1, 0, "other");
  const std::string seen = top(120);
  expect_says(seen, " GPU% ");
  expect_says(seen, " <62% ");
  client.gpu_bound_ns.store(0);
  expect_says(top(120), " ~62% ");
  EXPECT_TRUE(nlohmann::json::parse(top_json(view(), "s"))["clients"][1]["gpu_share"].is_null());
}

// Prevents: a column of targets that pushes the names out of a narrow terminal.
TEST_F(Use, TopFitsTheTargetToTheTerminal) {
  shm::Slot& client = add_target(0, "p99=50ms");
  expect_says(top(120), " TARGET     ");
  expect_says(top(120), " p99=50ms - ");
  client.target_jobs.store(1000);
  client.target_kept.store(999);
  expect_says(top(120), " p99=50ms 99.9% ");
  expect_silent(top(80), "p99=50ms");
  expect_says(top(80), " 99.9% ");
  expect_silent(top(50), "TARGET");
  for (const std::size_t columns : {50, 80, 100}) expect_says(top(columns), "serve.py");
}

TEST_F(Use, TopSaysMoreOfTheSelectedClient) {
  shm::Slot& client = add_target(0, "p99=50ms");
  std::strcpy(client.label.data(), "team=vision");
  client.gpu_ns.store(1000 * kMs);
  Controls controls;
  controls.press(kDown, view());
  const std::string seen = top(100, controls);
  for (const char* line : {"  labels team=vision\n", "  gpu ~1.0 s (", "  target p99=50ms\n"}) {
    expect_says(seen, line);
  }
}

// Prevents: nobody sees what the steps of a server take, or when gates open in them.
TEST_F(Use, StepsAndTheirWindowsAreShown) {
  shm::Slot& client = add_client(0, 5, "python serve.py");
  EXPECT_EQ(text().find("steps"), std::string::npos);
  EXPECT_TRUE(json()["clients"][0]["steps"].is_null());
  shm::StepTimes& steps = client.steps;
  const auto is = [&](shm::StepState state) {
    steps.state.store(static_cast<std::uint32_t>(state));
  };
  steps.ended.store(4000);
  const auto kind = [&](std::size_t i, std::uint32_t share, std::uint32_t p50, std::uint32_t p99) {
    steps.kinds[i].name.store(static_cast<std::uint32_t>(i) + 3);
    steps.kinds[i].share.store(share);
    steps.kinds[i].p50_us.store(p50);
    steps.kinds[i].p99_us.store(p99);
  };
  kind(0, 1000, 21'340, 23'000);
  is(shm::StepState::kLearning);
  expect_says(text(), "steps take 21.3 ms (p99 23.0 ms)\n");
  kind(0, 971, 21'340, 23'000);
  kind(1, 29, 140'200, 160'000);
  is(shm::StepState::kWindows);
  steps.windows.store(1000);
  steps.window_us.store(1050);
  steps.cost.store(41);
  steps.open_ns.store(1050 * kMs);
  expect_says(text(), "steps take 21.3 ms (p99 23.0 ms), 2 % of them 140 ms (p99 160 ms)\n");
  // A graph of another size of the batch takes about as long, and is not worth a word.
  kind(1, 400, 24'900, 27'000);
  kind(2, 29, 140'200, 160'000);
  expect_says(text(), "steps take 21.3 ms (p99 23.0 ms), 2 % of them 140 ms (p99 160 ms)\n");
  kind(1, 400, 17'100, 18'000);
  expect_says(text(), "steps take 21.3 ms (p99 23.0 ms), 40 % of them 17.1 ms (p99 18.0 ms)\n");
  kind(1, 29, 140'200, 160'000);
  steps.kinds[2].name.store(0);
  expect_says(text(), "gates open for 1.1 ms every 4 steps: steps are 4.1 % longer\n");
  steps.windows.store(3900);
  expect_says(text(), "gates open for 1.1 ms in each step: steps are 4.1 % longer\n");
  is(shm::StepState::kNoWindow);
  expect_says(text(), "gates stay closed\n");
  is(shm::StepState::kJobs);
  expect_says(text(), "gates seldom open: its target is of jobs, which do not end\n");
  is(shm::StepState::kTriesOpen);
  expect_says(text(), "tries whether closing the gates brings it anything\n");
  EXPECT_EQ(json()["clients"][0]["steps"]["state"], "trying");
  is(shm::StepState::kOpen);
  expect_says(text(), "gates stay open: steps are only 4.1 % longer\n");
  EXPECT_EQ(json()["clients"][0]["steps"]["state"], "open");
  const auto shown = json()["clients"][0]["steps"];
  EXPECT_EQ(shown["steps"], 4000);
  EXPECT_EQ(shown["windows"], 3900);
  EXPECT_EQ(shown["window_ns"], 1'050'000);
  EXPECT_EQ(shown["open_ns"], 1'050'000'000);
  EXPECT_EQ(shown["longer"], 0.041);
  ASSERT_EQ(shown["kinds"].size(), 2U);
  const nlohmann::json second{
      {"kind", 4}, {"share", 0.029}, {"p50_ns", 140'200'000}, {"p99_ns", 160'000'000}};
  EXPECT_EQ(shown["kinds"][1], second);
  is(shm::StepState::kNone);
  EXPECT_EQ(text().find("steps"), std::string::npos) << "it is idle between its jobs now";
  Controls controls;
  controls.press(kDown, view());
  is(shm::StepState::kWindows);
  expect_says(top(100, controls), "  steps take 21.3 ms (p99");
  steps.state.store(99);
  EXPECT_EQ(json()["clients"][0]["steps"]["state"], "none") << "of a hostile process";
}

// Prevents: a target of steps for a program that has none has no effect, and nobody learns why.
TEST_F(Use, ATargetOfStepsSaysWhatItIsOf) {
  shm::Slot& client = add_target(0, "step p99=25ms");
  expect_says(text(), "^ target of steps: it has none, because it is idle between its jobs");
  client.steps.state.store(static_cast<std::uint32_t>(shm::StepState::kWindows));
  client.target_jobs.store(812);
  client.target_kept.store(807);
  client.target_total_ns.store(5000 * kMs);
  expect_says(text(), "target step p99=25ms: 99.4 % of 812 steps in time\n");
  EXPECT_EQ(text().find("idle between"), std::string::npos);
  client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kMissed));
  client.target_ns.store(25 * kMs);
  client.alone_ns.store(26 * kMs);
  expect_says(text(), "^ target cannot be kept: its steps take 26 ms alone\n");
  client.alone_ns.store(24 * kMs);
  expect_says(text(), "^ target too tight: steps take 24 ms alone, some over 1 ms longer");
  client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kLearning));
  expect_silent(text(), "^ target:");
  client.target.store(shm::parse_target("step p99=1.2x")->pack());
  client.requested_target.store(client.target.load());
  expect_says(text(), "^ target: not known yet, because too few steps ran alone");
}

// Prevents: nobody learns why best effort gets so little next to a program without pauses.
TEST_F(Use, SaysWhatAProgramWithoutPausesGives) {
  shm::Slot& client = add_target(0, "none");
  client.steps.state.store(static_cast<std::uint32_t>(shm::StepState::kWindows));
  EXPECT_EQ(text().find("never idle"), std::string::npos);
  client.steps.windows.store(30);
  client.steps.window_us.store(1000);
  client.steps.open_ns.store(31 * kMs);
  client.steps.cost.store(48);
  expect_says(text(), "is never idle: gates open for 1.0 ms at a time, 31 ms in all\n");
  expect_says(text(), "jobs are 4.8 % longer\n");
}

TEST_F(Use, LinesFitATerminal) {
  for (int index = 0; index < shm::kSlots; ++index) {
    shm::Slot& client = add_target(index, "p99.9=1234.567ms");
    std::strcpy(client.label.data(), ("a=" + std::string(shm::kLabelSize - 3, 'x')).c_str());
    set_name(client, std::string(shm::kNameSize - 1, 'n'));
    client.target_jobs.store(99'999'999'999);
    client.job_times.total_ns.store(1);
    client.gpu_ns.store(~std::uint64_t{0} / 2);
    for (shm::Word& ns : client.held_by_ns) ns.store(3'600'000 * kMs);
    client.target_state.store(static_cast<std::uint32_t>(shm::TargetState::kMissed));
    client.steps.state.store(static_cast<std::uint32_t>(shm::StepState::kJobs));
    for (auto& kind : client.steps.kinds) {
      kind.name.store(7);
      kind.p50_us.store(4'000'000'000);
    }
  }
  for (const std::string& shown : {text(), top(80)}) {
    std::istringstream lines(shown);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

}  // namespace
}  // namespace sluice::tools
