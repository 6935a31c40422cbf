// The metrics page: it parses, and its numbers are the board's.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "controller/exposition.hpp"
#include "controller/metrics_address.hpp"
#include "controller/process.hpp"
#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/memory.hpp"
#include "shm/policy.hpp"
#include "shm/slice_answer.hpp"
#include "shm/target.hpp"
#include "shm/target_counts.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

using controller::exposition;
using controller::parse_metrics_address;
using controller::printable;
using controller::Tally;

/// Samples by name and labels, as they stand in the text. Fails on a line that the format does not
/// know, on a sample outside its family, and on a sample that stands twice.
std::map<std::string, double> parse(const std::string& text) {
  static const std::regex kHead(R"(# (HELP|TYPE) ([a-z_]+) (.+))");
  static const std::regex kSample(
      R"rx(([a-z_]+)(\{([a-z_]+="([^"\\\n]|\\[\\"n])*",?)*\})? ([0-9.e+-]+))rx");
  std::map<std::string, double> samples;
  std::set<std::string> families;
  std::string family;
  bool histogram = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kHead)) {
      if (match[1] == "HELP") {
        EXPECT_TRUE(families.insert(match[2]).second) << line;
      }
      if (match[1] == "TYPE") {
        const bool total = match[2].str().ends_with("_total");
        histogram = match[2].str().ends_with("_duration_seconds");
        EXPECT_EQ(match[3], total ? "counter" : histogram ? "histogram" : "gauge") << line;
      }
      family = match[2];
    } else if (std::regex_match(line, match, kSample)) {
      if (histogram) {
        EXPECT_TRUE(match[1] == family + "_bucket" || match[1] == family + "_sum" ||
                    match[1] == family + "_count")
            << line;
        EXPECT_EQ(match[1] == family + "_bucket", line.find("le=\"") != std::string::npos) << line;
      } else {
        EXPECT_EQ(match[1], family) << line;
      }
      EXPECT_TRUE(samples.emplace(line.substr(0, line.rfind(' ')), std::stod(match[5])).second)
          << line;
    } else {
      ADD_FAILURE() << "not the Prometheus format: " << line;
    }
  }
  return samples;
}

/// A board in the heap with one held client in slot 4.
std::unique_ptr<shm::Board> example_board() {
  auto board = std::make_unique<shm::Board>();
  board->used.store(shm::bit(4));
  board->heartbeat_ns.store(1'000'000'000);
  board->max_hold_ns.store(2'500'000'000);
  board->devices[2].used.store(1);
  board->devices[2].uuid.fill(0xab);
  shm::Slot& slot = board->slots[4];
  slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 3, 2, 1}.pack());
  slot.pid.store(4711);
  slot.policy.store(shm::Policy{shm::PolicyKind::kDevice, shm::Spacing::launches(4)}.pack());
  slot.gate.store(shm::bit(1) | shm::bit(7));
  slot.closed_ns.store(1'500'000'000);
  slot.job.store(13);
  for (const std::uint64_t ns : {50'000U, 800'000U, 800'000U, 3'000'000U}) slot.job_times.add(ns);
  slot.job_times.add(30'000'000'000);
  std::strcpy(slot.name.data(), "train \"x\"");
  slot.max_hold_opened.store(2);
  slot.entries[0][shm::Count::kGated].store(30);
  slot.entries[0][shm::Count::kCaptured].store(10);
  slot.entries[0][shm::Count::kBypassRefusedWait].store(2);
  slot.skipped_waits.store(3);
  slot.entries[0][shm::Count::kWaited].store(8);
  slot.entries[0][shm::Count::kHeldNs].store(250'000'000);
  std::strcpy(slot.command.data(), "a \"b\" \\c\nd");
  return board;
}

TEST(Metrics, TheNumbersAreTheBoards) {
  const auto board = example_board();
  Tally tally;
  tally.deaths_repaired.store(5);
  const std::vector<shm::OutsideProcess> outside{{2, 0, "x", {}, false}, {2, 9, "y", 1024, true}};
  auto samples = parse(exposition(*board, tally, 1'040'000'000, outside));
  const std::string who = R"(slot="4",pid="4711",name="train \"x\"",)"
                          R"(device="GPU-abababab-abab-abab-abab-abababababab")";
  const std::string entry = "{" + who + R"(,entry="cuLaunchKernel")";
  EXPECT_EQ(samples[R"(sluice_clients{state="live"})"], 1);
  EXPECT_EQ(samples[R"(sluice_clients{state="dead"})"], 0);
  EXPECT_EQ(samples["sluice_slots"], 63);
  EXPECT_EQ(samples["sluice_client_info{" + who +
                    R"(,priority="3",policy="device:4",target="none",state="live"})"],
            1);
  EXPECT_EQ(samples["sluice_gate_closed{" + who + "}"], 1);
  EXPECT_EQ(samples["sluice_gate_holders{" + who + "}"], 2);
  EXPECT_EQ(samples["sluice_gate_closed_seconds_total{" + who + "}"], 1.5);
  EXPECT_EQ(samples["sluice_client_active{" + who + "}"], 1);
  EXPECT_EQ(samples["sluice_jobs_total{" + who + "}"], 5) << "not the slot's 6";
  const std::string jobs = "sluice_job_duration_seconds";
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="0.0001"})"], 1);
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="0.0005"})"], 1);
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="0.001"})"], 3) << "buckets add up";
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="10"})"], 4);
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="+Inf"})"], 5);
  EXPECT_EQ(samples[jobs + "_count{" + who + "}"], 5);
  EXPECT_DOUBLE_EQ(samples[jobs + "_sum{" + who + "}"], 30.00465);
  EXPECT_EQ(samples["sluice_max_hold_openings_total{" + who + "}"], 2);
  EXPECT_EQ(samples["sluice_launches_total" + entry + "}"], 42);
  EXPECT_EQ(samples["sluice_launches_gated_total" + entry + "}"], 30);
  EXPECT_EQ(samples["sluice_launches_captured_total" + entry + "}"], 10);
  EXPECT_EQ(samples["sluice_launches_waited_total" + entry + "}"], 8);
  EXPECT_EQ(samples["sluice_launch_held_seconds_total" + entry + "}"], 0.25);
  EXPECT_EQ(samples["sluice_launches_bypassed_total" + entry + R"(,reason="refused_wait"})"], 2);
  EXPECT_EQ(samples["sluice_skipped_waits_total{" + who + "}"], 3);
  EXPECT_EQ(samples["sluice_launches_bypassed_total" + entry + R"(,reason="unattached"})"], 0);
  EXPECT_EQ(samples["sluice_deaths_repaired_total"], 5);
  EXPECT_EQ(samples["sluice_max_hold_seconds"], 2.5);
  EXPECT_NEAR(samples["sluice_heartbeat_age_seconds"], 0.04, 1e-9);
  const std::string device = R"({device="GPU-abababab-abab-abab-abab-abababababab"})";
  EXPECT_EQ(samples["sluice_outside_processes" + device], 2);
  EXPECT_EQ(samples["sluice_outside_memory_bytes" + device], 1024);
  EXPECT_EQ(samples.count("sluice_device_slices_obeyed" + device), 0) << "no answer yet";
}

/// The samples whose names begin with `prefix`.
std::map<std::string, double> samples_of(const shm::Board& board, const std::string& prefix) {
  auto samples = parse(exposition(board, Tally(), 1'040'000'000));
  std::erase_if(samples, [&](const auto& sample) { return !sample.first.starts_with(prefix); });
  return samples;
}

// Prevents: zeros that look measured, where nothing is known or no target was given.
TEST(Metrics, WhatIsUnknownHasNoSample) {
  const auto board = example_board();
  for (const char* name :
       {"sluice_client_gpu", "sluice_client_target", "sluice_client_open", "sluice_client_held"}) {
    EXPECT_TRUE(samples_of(*board, name).empty()) << name;
  }
}

TEST(Metrics, TargetsAndGpuTimeAreTheBoards) {
  const auto board = example_board();
  shm::Slot& slot = board->slots[4];
  slot.gpu_ns.store(12'300'000'000);
  slot.gpu_bound_ns.store(2'500'000'000);
  slot.target.store(shm::parse_target("p99=50ms")->pack());
  slot.target_jobs.store(812);
  slot.target_kept.store(807);
  slot.open_ns.store(2'500'000'000);
  const auto value = [&](const std::string& name) {
    const auto found = samples_of(*board, name + "{");
    return found.size() == 1 ? found.begin()->second : -1;
  };
  EXPECT_EQ(value("sluice_client_gpu_seconds_total"), 12.3);
  EXPECT_EQ(value("sluice_client_gpu_bound_seconds_total"), 2.5);
  EXPECT_EQ(value("sluice_client_target_jobs_total"), 812);
  EXPECT_EQ(value("sluice_client_target_kept_total"), 807);
  EXPECT_EQ(value("sluice_client_open_gate_seconds_total"), 2.5);
  EXPECT_EQ(value("sluice_client_target_seconds"), -1) << "not known yet";
  EXPECT_EQ(value("sluice_client_slice_seconds"), -1) << "the driver's";
  slot.slice_us.store(250);
  EXPECT_EQ(value("sluice_client_slice_seconds"), 250e-6);
  for (const auto kind : {shm::SliceAnswer::Kind::kObeyed, shm::SliceAnswer::Kind::kNotObeyed}) {
    board->slice_answers[2].store(shm::SliceAnswer{kind, 260}.pack());
    EXPECT_EQ(value("sluice_device_slices_obeyed"), kind == shm::SliceAnswer::Kind::kObeyed);
  }
  EXPECT_EQ(value("sluice_client_give_ratio"), 0.05);
  slot.requested_give.store(shm::pack_give(0));
  EXPECT_EQ(value("sluice_client_give_ratio"), 0);
  EXPECT_TRUE(samples_of(*board, "sluice_client_given_ratio").empty()) << "not known yet";
  slot.gives_known.store(1);
  slot.gives_closing.store(120);
  slot.gives_windows.store(190);
  std::map<std::string, double> given;
  for (const auto& [labels, ratio] : samples_of(*board, "sluice_client_given_ratio")) {
    const std::size_t begin = labels.find("lever=\"") + 7;
    given[labels.substr(begin, labels.find('"', begin) - begin)] = ratio;
  }
  EXPECT_EQ(given,
            (std::map<std::string, double>{{"closing", 0.012}, {"open", 0}, {"windows", 0.019}}));
  EXPECT_EQ(value("sluice_client_timed_total"), -1) << "it holds nobody";
  slot.items.store(200);
  slot.items_ns.store(4'000'000'000);
  slot.items_waited_ns.store(62'500'000);
  EXPECT_EQ(value("sluice_client_timed_total"), 200);
  EXPECT_EQ(value("sluice_client_timed_seconds_total"), 4);
  EXPECT_EQ(value("sluice_client_waited_seconds_total"), 0.0625);
  EXPECT_EQ(value("sluice_client_close_level"), -1) << "nothing is tried";
  slot.close_state.store(shm::CloseWord{shm::CloseState::kClosesLater, 5}.pack());
  EXPECT_EQ(value("sluice_client_close_level"), 5);
  EXPECT_EQ(value("sluice_client_steps_total"), -1) << "it is idle between its jobs";
  slot.steps.ended.store(4000);
  slot.steps.windows.store(1000);
  slot.steps.open_ns.store(1'500'000'000);
  slot.steps.kinds[0].name.store(3);
  slot.steps.kinds[0].p50_us.store(21'000);
  slot.steps.kinds[0].p99_us.store(23'000);
  EXPECT_EQ(value("sluice_client_steps_total"), 4000);
  EXPECT_EQ(value("sluice_client_step_windows_total"), 1000);
  EXPECT_EQ(value("sluice_client_step_open_seconds_total"), 1.5);
  const auto times = samples_of(*board, "sluice_client_step_seconds{");
  ASSERT_EQ(times.size(), 2U);
  for (const auto& [labels, seconds] : times) {
    EXPECT_NE(labels.find("kind=\"3\""), std::string::npos) << labels;
    EXPECT_EQ(seconds, labels.find("0.99") == std::string::npos ? 0.021 : 0.023) << labels;
  }
  slot.target_ns.store(50'000'000);
  EXPECT_EQ(value("sluice_client_target_seconds"), 0.05);
  slot.job.store(12);
  EXPECT_EQ(value("sluice_client_active"), 0);
  slot.open_job.store(1);
  EXPECT_EQ(value("sluice_client_active"), 1) << "its target leaves the gates open";
}

// Prevents: a client without a limit looks like one that may hold 16 EiB, or nothing.
TEST(Metrics, MemoryIsTheBoards) {
  const auto board = example_board();
  const auto of = [&](const std::string& name) { return samples_of(*board, name + "{"); };
  board->slots[4].memory.held.store(3'000'000);
  ASSERT_EQ(of("sluice_client_memory_bytes").size(), 1U);
  EXPECT_EQ(of("sluice_client_memory_bytes").begin()->second, 3e6);
  EXPECT_TRUE(of("sluice_client_memory_grant_bytes").empty());
  EXPECT_TRUE(of("sluice_client_memory_limit_bytes").empty());
  EXPECT_EQ(of("sluice_client_refused_allocations_total").begin()->second, 0);
  board->slots[4].memory_limit.store(5'000'000);
  board->slots[4].memory.refused_allocations.store(6);
  ASSERT_EQ(of("sluice_client_memory_limit_bytes").size(), 1U);
  EXPECT_EQ(of("sluice_client_memory_limit_bytes").begin()->second, 5e6);
  EXPECT_EQ(of("sluice_client_refused_allocations_total").begin()->second, 6);
  shm::Slot& broker = board->slots[9];
  board->used.fetch_or(shm::bit(9));
  broker.info.store(shm::SlotInfo{shm::SlotState::kLive, 7, 2, 1}.pack());
  broker.alive.initialise();
  ASSERT_TRUE(broker.alive.take());
  const auto generation = shm::SlotInfo::unpack(board->slots[4].info.load()).generation;
  shm::set_grant(*board, {9, 1}, {4, generation}, 4'000'000);
  ASSERT_EQ(of("sluice_client_memory_grant_bytes").size(), 1U);
  EXPECT_EQ(of("sluice_client_memory_grant_bytes").begin()->second, 4e6);
  broker.alive.release();
  EXPECT_TRUE(of("sluice_client_memory_grant_bytes").empty()) << "its broker is dead";
}

// Prevents: the time of a client that has ended, charged to whoever has its slot.
TEST(Metrics, HeldTimeIsByHolder) {
  const auto board = example_board();
  shm::Slot& holder = board->slots[9];
  board->used.fetch_or(shm::bit(9));
  holder.info.store(shm::SlotInfo{shm::SlotState::kLive, 7, 2, 1}.pack());
  holder.pid.store(99);
  std::strcpy(holder.name.data(), "serve");
  board->slots[4].held_by_ns[9].store(1'250'000'000);
  board->slots[4].held_by_ns[11].store(5);  // slot 11 is free
  board->slots[4].held_by_ns[shm::kControllerBit].store(500'000'000);
  auto held = samples_of(*board, "sluice_client_held_seconds_total");
  EXPECT_EQ(held.size(), 2U);
  const std::string who =
      R"(sluice_client_held_seconds_total{slot="4",pid="4711",name="train \"x\"",)"
      R"(device="GPU-abababab-abab-abab-abab-abababababab",)";
  EXPECT_EQ(held[who + R"(holder="serve",holder_pid="99"})"], 1.25);
  EXPECT_EQ(held[who + R"(holder="the controller",holder_pid="0"})"], 0.5);
}

/// The series of each counter on a page, by family, and their sums.
struct Counters {
  std::map<std::string, std::set<std::string>> series;
  std::map<std::string, double> sums;
};
Counters counters_of(const shm::Board& board) {
  Counters found;
  for (const auto& [name, value] : parse(exposition(board, Tally(), 1'040'000'000))) {
    const std::string family = name.substr(0, name.find('{'));
    if (!family.ends_with("_total") && !family.ends_with("_count")) continue;
    found.series[family].insert(name);
    found.sums[family] += value;
  }
  return found;
}

// Prevents: a counter that goes on under other labels, or begins anew, when the settings of a
// client change: sums over series, as Prometheus makes them, count what happened twice or lose it.
TEST(Metrics, CountersKeepTheirSeriesOverEveryChangeOfSettings) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    const auto board = example_board();
    shm::Slot& slot = board->slots[4];
    Counters before = counters_of(*board);
    double jobs = 5;
    double in_time = 0;
    double launches = 42;
    for (int step = 0; step < 25; ++step) {
      for (std::uint32_t happens = random() % 5; happens > 0; --happens) {
        slot.job_times.add(random() % 50'000'000);
        jobs += 1;
        slot.entries[0][shm::Count::kGated].fetch_add(3);
        launches += 3;
        slot.gpu_ns.fetch_add(1'000'000);
        slot.closed_ns.fetch_add(1'000'000);
        if (slot.target.load() == 0) continue;
        slot.target_jobs.fetch_add(1);
        slot.target_kept.fetch_add(1);
        in_time += 1;
      }
      switch (random() % 4) {
        case 0:
          slot.info.store(
              shm::SlotInfo{shm::SlotState::kLive, static_cast<std::uint8_t>(random() % 4), 2, 1}
                  .pack());
          break;
        case 1:
          slot.policy.store(shm::parse_policy(random() % 2 == 0 ? "none" : "device:200us")->pack());
          break;
        case 2:
          slot.target.store(random() % 3 == 0 ? 0 : shm::parse_target("p99=5ms")->pack());
          shm::begin_target(slot);
          break;
        default:
          slot.requested_weight.store(random() % 3);
          slot.slice_us.store(random() % 2 * 250);
      }
      const Counters now = counters_of(*board);
      for (const auto& [family, series] : before.series) {
        for (const std::string& name : series) {
          EXPECT_TRUE(now.series.at(family).contains(name)) << name << ", seed " << seed;
        }
        EXPECT_GE(now.sums.at(family), before.sums.at(family)) << family << ", seed " << seed;
      }
      EXPECT_EQ(now.sums.at("sluice_jobs_total"), jobs) << "seed " << seed;
      EXPECT_EQ(now.sums.at("sluice_job_duration_seconds_count"), jobs) << "seed " << seed;
      EXPECT_EQ(now.sums.at("sluice_launches_total"), launches) << "seed " << seed;
      const auto kept = now.sums.find("sluice_client_target_kept_total");
      EXPECT_EQ(kept == now.sums.end() ? 0 : kept->second, in_time) << "seed " << seed;
      before = now;
    }
  }
}

// Prevents: "held for 20,000 days", which a client with a clock of its own has written, in a graph
// for good.
TEST(Metrics, NothingLastedLongerThanTheClientIsThere) {
  const auto board = example_board();
  shm::Slot& slot = board->slots[4];
  slot.attached_ns.store(540'000'000);
  slot.target.store(shm::parse_target("p99=5ms")->pack());
  slot.steps.ended.store(1);
  for (shm::Word* ns : {&slot.closed_ns, &slot.held_by_ns[shm::kControllerBit], &slot.open_ns,
                        &slot.job_times.total_ns, &slot.steps.open_ns, &slot.steps.total_ns}) {
    ns->store(~std::uint64_t{0} / 2);
  }
  for (const char* name :
       {"sluice_gate_closed_seconds_total", "sluice_client_held_seconds_total",
        "sluice_client_open_gate_seconds_total", "sluice_job_duration_seconds_sum",
        "sluice_client_step_open_seconds_total", "sluice_client_step_duration_seconds_total"}) {
    const auto found = samples_of(*board, name);
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_EQ(found.begin()->second, 0.5) << name;
  }
}

// Prevents: a label of a user that takes the place of one of Sluice.
TEST(Metrics, EverySeriesOfAClientHasItsLabels) {
  const auto board = example_board();
  std::strcpy(board->slots[4].label.data(), "team=vision,name=other");
  for (const char* name : {"sluice_client_info", "sluice_jobs_total", "sluice_launches_total",
                           "sluice_job_duration_seconds_sum"}) {
    const auto found = samples_of(*board, name);
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_NE(found.begin()->first.find(R"(,label_team="vision",label_name="other")"),
              std::string::npos)
        << found.begin()->first;
  }
}

// Prevents: a p99 of few jobs, and a GPU that is said to be idle where NVML says nothing.
TEST(Metrics, GpuUseAndPercentilesAreThoseOfTheLedger) {
  const auto board = example_board();
  controller::Lookout::Use use;
  use.devices[2] = {.shared_ns = 100'000'000'000,
                    .critical = {.ns = 20'000'000'000},
                    .best_effort = {.ns = 50'000'000'000, .unknown_ns = 5'000'000'000},
                    .idle_before_ns = 40'000'000'000};
  for (int job = 0; job < 200; ++job) use.jobs[4].mixed.add(10'000'000);
  use.jobs[4].alone.add(10'000'000);
  auto samples = parse(exposition(*board, Tally(), 1'040'000'000, {}, use));
  const std::string gpu = R"({device="GPU-abababab-abab-abab-abab-abababababab")";
  EXPECT_EQ(samples["sluice_device_shared_seconds_total" + gpu + "}"], 100);
  EXPECT_EQ(samples["sluice_device_used_seconds_total" + gpu + R"(,by="critical"})"], 20);
  EXPECT_EQ(samples["sluice_device_used_seconds_total" + gpu + R"(,by="best_effort"})"], 50);
  EXPECT_EQ(samples["sluice_device_unknown_seconds_total" + gpu + R"(,by="best_effort"})"], 5);
  EXPECT_EQ(samples["sluice_device_unknown_seconds_total" + gpu + R"(,by="critical"})"], 0);
  EXPECT_EQ(samples["sluice_device_idle_before_seconds_total" + gpu + "}"], 40);
  EXPECT_EQ(samples.count("sluice_device_busy_seconds_total" + gpu + "}"), 0U);
  std::map<std::string, double> quantiles;
  for (const auto& [name, value] : samples) {
    if (name.starts_with("sluice_client_job_seconds{")) quantiles[name] = value;
  }
  ASSERT_EQ(quantiles.size(), 1U);
  EXPECT_NE(quantiles.begin()->first.find(R"(best_effort="works",quantile="0.99"})"),
            std::string::npos);
  EXPECT_NEAR(quantiles.begin()->second, 0.01, 0.0002);
  use.devices[2].seen_ns = 90'000'000'000;
  use.devices[2].busy_ns = 80'000'000'000;
  samples = parse(exposition(*board, Tally(), 1'040'000'000, {}, use));
  EXPECT_EQ(samples["sluice_device_busy_seconds_total" + gpu + "}"], 80);
  EXPECT_EQ(samples["sluice_device_seen_seconds_total" + gpu + "}"], 90);
}

// Prevents: secrets in arguments, read by any user of the machine: a loopback port asks nobody.
TEST(Metrics, CommandLinesAreNotOnThePage) {
  const auto board = example_board();
  std::strcpy(board->slots[4].command.data(), "serve --token=hunter2");
  const std::string page =
      exposition(*board, Tally(), 1'040'000'000, {{2, 9, "other --token=hunter2", {}, false}});
  EXPECT_EQ(page.find("hunter2"), std::string::npos) << page;
  EXPECT_EQ(page.find("token"), std::string::npos) << page;
  const std::string own = exposition(*board, Tally(), 1'040'000'000, {}, {}, {.commands = true});
  EXPECT_NE(own.find(R"(,command="serve --token=hunter2"})"), std::string::npos) << own;
}

// Prevents: a command line ends the log line, drives the terminal, or makes the page invalid UTF-8.
TEST(Metrics, TextOfOthersIsMadePrintable) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f", 99), "a?b?[31m?");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f", 99), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("gr\xc3\xbc", 3), "gr") << "not half a character";
  EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80\xc0\x80", 99), "\?\?(\?\?\?\?\?");
  // Who may write to a node's board writes what it likes. Prometheus refuses a page with such
  // bytes.
  const auto board = example_board();
  std::strcpy(board->slots[4].name.data(), "serve\xff");
  const std::string page = exposition(*board, Tally(), 1'040'000'000, {});
  EXPECT_EQ(page.find('\xff'), std::string::npos);
  EXPECT_NE(page.find(R"(name="serve?")"), std::string::npos) << page;
}

// Prevents: metrics, and with them command lines, on the network.
TEST(Metrics, LoopbackAddressesOnly) {
  EXPECT_EQ(parse_metrics_address("127.0.0.1:9464")->port, 9464);
  EXPECT_EQ(parse_metrics_address("127.1.2.3:0")->host, "127.1.2.3");
  EXPECT_EQ(parse_metrics_address("localhost:80")->host, "127.0.0.1");
  EXPECT_EQ(parse_metrics_address("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_metrics_address("unix:/run/metrics")->path, "/run/metrics");
  EXPECT_FALSE(parse_metrics_address("unix:/" + std::string(107, 'x'))) << "too long for a socket";
  for (const char* wrong :
       {"", ":9464", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:9464x", "0.0.0.0:9464", "[::]:9464", "10.0.0.1:9464", "example.com:80",
        "127.0.0.1.example.com:80", "unix:", "unix:here", "unix:/folder/", "/run/metrics"}) {
    EXPECT_FALSE(parse_metrics_address(wrong)) << wrong;
  }
}

/// The answer to a request on a connected socket.
std::string answer_of(const base::Fd& fd, const std::string& head) {
  const std::string request = head + " HTTP/1.1\r\nHost: x\r\n\r\n";
  send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  char bytes[4096];
  for (ssize_t size = 0; (size = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) {
    answer.append(bytes, static_cast<std::size_t>(size));
  }
  return answer;
}

class MetricsServer : public ControllerTest {
 protected:
  void SetUp() override {
    controller_ = start_controller({"--metrics", "127.0.0.1:0"});
    const std::string said = log();
    const std::string mark = "metrics=http://127.0.0.1:";
    port_ = std::stoi(said.substr(said.find(mark) + mark.size()));
  }
  void TearDown() override {
    controller_->signal(SIGTERM);
    EXPECT_EQ(controller_->wait(), 0);
    ControllerTest::TearDown();
  }

  base::Fd connect_http() const {
    base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  std::string fetch(const std::string& head) const { return answer_of(connect_http(), head); }

  std::unique_ptr<Process> controller_;
  int port_ = 0;
};

TEST_F(MetricsServer, ServesThePageAndNothingElse) {
  const FakeClient client(session_, 5);
  const std::string answer = fetch("GET /metrics");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("text/plain; version=0.0.4"), std::string::npos);
  auto samples = parse(answer.substr(answer.find("\r\n\r\n") + 4));
  EXPECT_EQ(samples[R"(sluice_clients{state="live"})"], 1);
  EXPECT_EQ(samples["sluice_attaches_total"], 1);
  EXPECT_TRUE(fetch("GET /").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(fetch("GET /metricsx").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(fetch("DELETE /metrics").starts_with("HTTP/1.1 405 "));
  EXPECT_TRUE(fetch("GET /metrics?x=y").starts_with("HTTP/1.1 200 "));
}

// Prevents: one client of the page that says nothing keeps all others from it, or the loop from
// its heartbeat, or takes all descriptors.
TEST_F(MetricsServer, SilentAndBrokenPeersStopNobody) {
  const std::filesystem::path files = "/proc/" + std::to_string(controller_->pid()) + "/fd";
  const auto open_files = [&] {
    return std::distance(std::filesystem::directory_iterator(files), {});
  };
  const auto before = open_files();
  std::vector<base::Fd> silent;
  // More than may be open at a time. Each would be ended for its silence after 5 s.
  for (int i = 0; i < 40; ++i) silent.push_back(connect_http());
  send(silent[0].get(), "\x16\x03garbage", 9, MSG_NOSIGNAL);
  EXPECT_TRUE(fetch("GET /metrics").starts_with("HTTP/1.1 200 "));
  EXPECT_LE(open_files(), before + 16);
  const Look look(session_);
  const std::uint64_t beat = look.board().heartbeat_ns.load();
  EXPECT_TRUE(eventually(
      [&] { return look.board().heartbeat_ns.load() > beat + 3 * shm::kHeartbeatPeriodNs; }));
}

// Prevents: a port that is taken leaves half a controller behind.
TEST_F(MetricsServer, ATakenPortIsAnErrorThatLeavesNothing) {
  const std::string other = session_ + "b";
  Process second({SLUICE_CONTROLLER_PROGRAM, "--session", other, "--metrics",
                  "127.0.0.1:" + std::to_string(port_)},
                 {.err = log_path()});
  EXPECT_EQ(second.wait(), 1);
  EXPECT_NE(log().find("cannot serve metrics on 127.0.0.1 port"), std::string::npos) << log();
  EXPECT_THROW(shm::BoardMapping::inspect(other), shm::NoBoard);
}

class MetricsSocket : public ControllerTest {
 protected:
  [[nodiscard]] sockaddr_un address() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }
  /// A stream socket that `call`, bind or connect, has been given the path.
  template <class Call>
  [[nodiscard]] base::Fd socket_at(Call call) const {
    base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const sockaddr_un to = address();
    EXPECT_EQ(call(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0)
        << std::strerror(errno);
    return fd;
  }
  [[nodiscard]] std::string page() const { return answer_of(socket_at(connect), "GET /metrics"); }
  [[nodiscard]] bool exists() const { return access(path_.c_str(), F_OK) == 0; }
  void expect_refused(const std::string& why) const {
    Process refused(
        {SLUICE_CONTROLLER_PROGRAM, "--session", session_ + "b", "--metrics", "unix:" + path_},
        {.err = log_path()});
    EXPECT_EQ(refused.wait(), 1);
    EXPECT_NE(log().find("cannot serve metrics on " + path_ + ": " + why), std::string::npos)
        << log();
    EXPECT_TRUE(exists());
  }

  const test::TempFolder folder_;
  const std::string path_ = folder_.file("metrics");
};

// Prevents: a page with command lines that other users can open, be it for a moment.
TEST_F(MetricsSocket, ServesThePageToItsUserOnly) {
  const mode_t before = umask(0);
  const auto controller =
      start_controller({"--metrics", "unix:" + path_, "--metrics", "127.0.0.1:0"});
  umask(before);
  EXPECT_NE(log().find(" metrics=unix:" + path_ + " metrics=http://127.0.0.1:"), std::string::npos)
      << log();
  struct stat found {};
  ASSERT_EQ(lstat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode, S_IFSOCK | 0600U);
  {
    const FakeClient client(session_, 5);
    EXPECT_NE(page().find(",command=\""), std::string::npos) << page();
    EXPECT_TRUE(page().starts_with("HTTP/1.1 200 OK\r\n"));
  }
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
  EXPECT_FALSE(exists()) << "the name is left behind";
}

// Prevents: no metrics after a controller that was killed.
TEST_F(MetricsSocket, TheSocketOfADeadControllerIsReplaced) {
  const auto killed = start_controller({"--metrics", "unix:" + path_});
  killed->signal(SIGKILL);
  killed->wait();
  ASSERT_TRUE(exists());
  const auto next = start_controller({"--metrics", "unix:" + path_});
  EXPECT_TRUE(page().starts_with("HTTP/1.1 200 OK\r\n"));
  next->signal(SIGTERM);
  EXPECT_EQ(next->wait(), 0);
}

// Prevents: the socket of a living server, or a file of the user, lost to a controller.
TEST_F(MetricsSocket, NothingThatIsInUseIsReplaced) {
  {
    const base::Fd server = socket_at(bind);
    ASSERT_EQ(listen(server.get(), 4), 0);
    expect_refused("another process uses it");
  }
  unlink(path_.c_str());
  static_cast<void>(folder_.write("metrics", "data"));
  expect_refused("it is not a socket");
  EXPECT_EQ(read_file(path_), "data");
}

// Prevents: a controller that ends takes the name of its successor with it.
TEST_F(MetricsSocket, OnlyItsOwnNameIsRemoved) {
  const auto controller = start_controller({"--metrics", "unix:" + path_});
  unlink(path_.c_str());
  const base::Fd successor = socket_at(bind);
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
  EXPECT_TRUE(exists());
}

}  // namespace
}  // namespace sluice::test
