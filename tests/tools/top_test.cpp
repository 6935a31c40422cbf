// `sluice top` on boards made here: what it works out from two looks, and that its pictures fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shm/gain.hpp"
#include "tests/support/board_test.hpp"
#include "tools/common/text.hpp"
#include "tools/top/frame.hpp"
#include "tools/top/json.hpp"

namespace sluice::tools {
namespace {

using test::kMs;
using test::kNow;

class Top : public test::BoardTest {
 protected:
  [[nodiscard]] shm::Snapshot at(std::uint64_t now_ns) const {
    return shm::take_snapshot(*board_, now_ns);
  }
  /// Of a board that did not change for half a second.
  [[nodiscard]] View view() const { return make_view(at(kNow - 500 * kMs), at(kNow)); }
  [[nodiscard]] std::string text(FrameSize size = {}) const {
    return plain_text(make_frame(view(), "s", size));
  }
  /// The line of a client, by its pid.
  static std::string line_of(const std::string& text, int pid) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      int first = 0;
      if (words >> first && first == pid) return line;
    }
    return {};
  }
  void set_recent(int index, std::size_t count) {
    slot(index).job_times.clear();
    for (std::size_t i = 0; i < count; ++i) slot(index).job_times.add((i + 1) * kMs);
  }
  /// The widest client there can be, in all slots.
  void fill_board() {
    for (int index = 0; index < shm::kSlots; ++index) {
      shm::Slot& client = add_client(index, index % 256, std::string(80, 'x').c_str());
      client.pid.store(4194304);
      client.uid.store(4'000'000'000U + static_cast<std::uint32_t>(index));
      client.policy.store(
          shm::Policy{shm::PolicyKind::kDevice, shm::Spacing::launches(1'000'000)}.pack());
      client.entries[0][shm::Count::kGated].store(99'999'999'999);
      client.attached_ns.store(kNow - 100 * kMs);
      client.skipped_waits.store(1'000'000);
      client.max_hold_opened.store(1'000'000);
      for (std::size_t i = 0; i < shm::JobTimes::kKept; ++i) client.job_times.add(3'599'000 * kMs);
    }
    for (int index = 1; index < shm::kSlots; ++index) hold(index, 0, kNow - 100 * kMs);
    set_state(1, shm::SlotState::kDead, 255);
  }
};

void expect_says(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no \"" << words << "\" in:\n" << text;
}

TEST_F(Top, RatesAreThoseBetweenTwoLooks) {
  shm::Slot& client = add_client(0, 0, "a");
  client.entries[0][shm::Count::kGated].store(1000);
  client.entries[6][shm::Count::kGated].store(10);
  client.job_times.ended.store(10);
  client.closed_ns.store(700 * kMs);
  const shm::Snapshot before = at(kNow - 500 * kMs);
  client.entries[0][shm::Count::kGated].store(1100);
  client.entries[6][shm::Count::kGated].store(15);
  client.job.store(1);
  client.job_times.ended.store(13);
  client.closed_ns.store(800 * kMs);
  const View view = make_view(before, at(kNow));
  EXPECT_DOUBLE_EQ(view.rates[0].launches_per_s, 210);
  EXPECT_DOUBLE_EQ(view.rates[0].jobs_per_s, 6);
  EXPECT_DOUBLE_EQ(view.rates[0].held_share, 0.2);
}

// Prevents: "64us" of jobs of long ago, next to a server whose steps take 20 ms.
TEST_F(Top, AClientThatIsNeverIdleIsShownByItsSteps) {
  shm::Slot& client = add_client(0, 1, "a");
  for (int i = 0; i < 3; ++i) client.job_times.add(64'000);
  client.steps.state.store(static_cast<std::uint32_t>(shm::StepState::kWindows));
  client.steps.add(20 * kMs, true);
  const shm::Snapshot before = at(kNow - 500 * kMs);
  for (const std::uint64_t ms : {21U, 22U, 30U}) client.steps.add(ms * kMs, true);
  const View view = make_view(before, at(kNow));
  EXPECT_EQ(view.rates[0].p50_ns, 21'500'000U);
  EXPECT_EQ(view.rates[0].max_ns, 30 * kMs);
  EXPECT_DOUBLE_EQ(view.rates[0].jobs_per_s, 6);
  const auto json = nlohmann::json::parse(top_json(view, "s"))["clients"][0]["recent_jobs"];
  EXPECT_EQ(json["of"], "steps");
  EXPECT_EQ(json["n"], 4);
  client.steps.state.store(static_cast<std::uint32_t>(shm::StepState::kNone));
  EXPECT_EQ(make_view(before, at(kNow)).rates[0].p50_ns, 64'000U) << "it is idle between its jobs";
}

// Prevents: the counters of the process before in the same slot taken for the new one's.
TEST_F(Top, AnotherClientOfTheSlotBeginsAnew) {
  shm::Slot& client = add_client(0, 0, "a");
  client.entries[0][shm::Count::kGated].store(1000);
  client.closed_ns.store(400 * kMs);
  const shm::Snapshot before = at(kNow - 500 * kMs);
  client.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 2}.pack());
  client.entries[0][shm::Count::kGated].store(20);
  client.closed_ns.store(0);
  client.attached_ns.store(kNow - 100 * kMs);
  EXPECT_DOUBLE_EQ(make_view(before, at(kNow)).rates[0].launches_per_s, 200);
  // Nor those of another board.
  shm::Snapshot other = at(kNow - 500 * kMs);
  other.board_id = 77;
  EXPECT_DOUBLE_EQ(make_view(other, at(kNow)).rates[0].launches_per_s, 200);
  EXPECT_EQ(make_view(other, at(kNow)).span_ns, 0U);
}

// Prevents: a share above 1, where a hold began before its client had work; one below 0.
TEST_F(Top, TheHeldShareStaysAShare) {
  shm::Slot& client = add_client(0, 0, "a");
  add_client(1, 1, "b");
  hold(1, 0, kNow - 5000 * kMs);
  const shm::Snapshot before = at(kNow - 500 * kMs);
  client.job.store(1);
  const View now_active = make_view(before, at(kNow));
  EXPECT_DOUBLE_EQ(now_active.rates[1].held_share, 1);
  const shm::Snapshot active = at(kNow);
  client.job.store(2);
  EXPECT_DOUBLE_EQ(make_view(active, at(kNow + 500 * kMs)).rates[1].held_share, 0);
}

TEST_F(Top, MedianAndLongestAreOfTheJobsThereWere) {
  add_client(0, 0, "a");
  EXPECT_EQ(view().rates[0].jobs, 0U);
  expect_says(line_of(text(), 100), " -      -  0 a");
  set_recent(0, 3);
  EXPECT_EQ(view().rates[0].p50_ns, 2 * kMs);
  EXPECT_EQ(view().rates[0].max_ns, 3 * kMs);
  expect_says(line_of(text(), 100), "2.00ms 3.00ms  3 a");
  set_recent(0, shm::JobTimes::kKept);
  EXPECT_EQ(view().rates[0].jobs, 64U);
  EXPECT_EQ(view().rates[0].p50_ns, 32'500'000U);
}

TEST_F(Top, ShowsWhoIsHeldByWhom) {
  add_client(0, 0, "python train.py");
  add_client(3, 100, "python serve.py");
  add_client(4, 7, "other");
  hold(3, 0, kNow - 12 * kMs);
  const std::string picture = text();
  expect_says(picture, "session s, 3 clients\n");
  expect_says(picture, "controller pid 7, heartbeat 5 ms ago");
  expect_says(line_of(picture, 100), "held 12ms    103 ");
  expect_says(line_of(picture, 103), "active 12ms");
  EXPECT_LT(picture.find("  103 "), picture.find("  104 ")) << "not by priority:\n" << picture;
  hold(4, 0, kNow - 12 * kMs);
  expect_says(line_of(text(), 100), "103+");
  expect_says(line_of(text({130, 0}), 100), "103+ serve.py");
}

// The selected client, or -1.
int selected_pid(const Controls& controls, const View& view) {
  const auto row = controls.selected(view);
  if (!row) return -1;
  return static_cast<int>(view.now.clients[controls.rows(view)[*row]].pid);
}

void type(Controls& controls, const View& view, const std::string& keys) {
  for (const char key : keys) EXPECT_EQ(controls.press(key, view), Controls::Action::kNone) << key;
}

// Prevents: on the board of all users, nobody sees whose programs hold his.
TEST_F(Top, ShowsTheUsersWhereThereAreSeveral) {
  add_client(0, 0, "low").uid.store(1);
  shm::Slot& other = add_client(1, 5, "high");
  other.uid.store(1);
  EXPECT_EQ(text({80, 0}).find("USER"), std::string::npos);
  other.uid.store(4'000'000'000);
  expect_says(text({80, 0}), "PID USER       PRI POLICY");
  expect_says(line_of(text({80, 0}), 100), " daemon       0 device");
  expect_says(line_of(text({80, 0}), 101), " 4000000000   5 device");
}

TEST_F(Top, SortsByWhatTheUserChooses) {
  slot(0).entries[0][shm::Count::kGated].store(5);
  add_client(0, 0, "b").attached_ns.store(kNow - 1000 * kMs);
  add_client(1, 1, "c").closed_ns.store(400 * kMs);
  slot(1).attached_ns.store(kNow - 1000 * kMs);
  add_client(2, 2, "a");
  set_recent(0, 9);
  set_recent(2, 3);
  const View seen = make_view(std::nullopt, at(kNow));
  const auto names = [&](Sort sort) {
    std::string text;
    for (const std::size_t i : rows_of(seen, sort, "")) text += seen.now.clients[i].name;
    return text;
  };
  EXPECT_EQ(names(Sort::kPriority), "acb");
  EXPECT_EQ(names(Sort::kName), "abc");
  EXPECT_EQ(names(Sort::kHeld), "cab");
  EXPECT_EQ(names(Sort::kLaunches), "bac");
  EXPECT_EQ(names(Sort::kMax), "bac");
  Controls controls;
  for (int presses = 0; presses < 5; ++presses) type(controls, seen, "s");
  EXPECT_EQ(controls.sort(), Sort::kPriority) << "the keys go round";
  type(controls, seen, "s");
  expect_says(plain_text(make_frame(seen, "s", {}, controls)), "3 clients, by name\n");
}

TEST_F(Top, TheFilterTakesNamesCommandsAndPids) {
  add_client(0, 0, "python train.py");
  add_client(3, 100, "python serve.py --port 8");
  Controls controls;
  for (const char* text : {"serve", "--port", "103"}) {
    type(controls, view(), "/" + std::string(text) + "\n");
    const std::string picture = plain_text(make_frame(view(), "s", {}, controls));
    expect_says(picture, "2 clients, 1 with '" + std::string(text) + "'\n");
    EXPECT_FALSE(line_of(picture, 103).empty());
    EXPECT_TRUE(line_of(picture, 100).empty()) << picture;
    type(controls, view(), "f\x1b");
    EXPECT_EQ(controls.rows(view()).size(), 2U) << "Escape shows all again";
  }
  type(controls, view(), "fqs?px\x7f");
  expect_says(plain_text(make_frame(view(), "s", {}, controls)), "filter: qs?p_\n");
}

// Prevents: the policy of another client changed because the rows have moved under the cursor.
TEST_F(Top, TheSelectionStaysWithItsClient) {
  add_client(0, 0, "a");
  add_client(1, 5, "b");
  add_client(2, 9, "c");
  Controls controls;
  EXPECT_EQ(selected_pid(controls, view()), -1);
  for (const int pid : {102, 101, 100, 100}) {
    controls.press(kDown, view());
    EXPECT_EQ(selected_pid(controls, view()), pid);
  }
  controls.press(kUp, view());
  set_state(1, shm::SlotState::kLive, 200);
  EXPECT_EQ(selected_pid(controls, view()), 101) << "now the first row";
  EXPECT_EQ(controls.selected(view()), 0U);
  expect_says(plain_text(make_frame(view(), "s", {}, controls)), "pid 101: b\n");
  slot(1).info.store(shm::SlotInfo{shm::SlotState::kLive, 200, 0, 2}.pack());
  EXPECT_EQ(selected_pid(controls, view()), -1) << "another process in the slot";
  // A small terminal shows the selected row.
  for (int presses = 0; presses < 3; ++presses) controls.press(kDown, view());
  const Frame small = make_frame(view(), "s", {80, 8}, controls);
  EXPECT_TRUE(std::any_of(small.begin(), small.end(), [](const Line& line) {
    return line.selected && line.text.starts_with("  100 ");
  })) << plain_text(small);
}

TEST_F(Top, AsksForThePolicyOfTheSelectedClient) {
  add_client(0, 0, "a");
  add_client(1, 5, "b");
  Controls controls;
  controls.press('p', View{});
  EXPECT_TRUE(controls.lines().empty()) << "there is no client to ask about";
  controls.press(kDown, view());
  controls.press(kDown, view());
  type(controls, view(), "pqate");
  const std::string question = "policy of a, pid 100 (now device:200us): qate_";
  expect_says(plain_text(make_frame(view(), "s", {}, controls)), question);
  EXPECT_EQ(controls.press(kEnter, view()), Controls::Action::kNone);
  EXPECT_EQ(controls.lines()[0], question) << "an error asks again";
  expect_says(controls.lines()[1], "'qate' is not a policy");
  type(controls, view(), "\x7f\x7f\x7f\x7fgate");
  EXPECT_EQ(controls.press(kEnter, view()), Controls::Action::kSetPolicy);
  EXPECT_EQ(controls.policy(), "gate");
  EXPECT_EQ(controls.client().pid, 100U);
  controls.say("done");
  EXPECT_EQ(controls.lines(), std::vector<std::string>{"done"});
  controls.press(kNoKey, view());
  EXPECT_EQ(controls.lines().size(), 1U) << "a resize is no key";
  type(controls, view(), "pg\x1b");
  EXPECT_TRUE(controls.lines().empty());
  EXPECT_EQ(controls.press('q', view()), Controls::Action::kQuit);
}

TEST_F(Top, HelpShowsTheKeysUntilTheNextKey) {
  add_client(0, 0, "a");
  Controls controls;
  type(controls, view(), "?");
  const std::string help = plain_text(make_frame(view(), "s", {}, controls));
  for (const char* word : {"up, down ", "p  ", "s  ", "f or /", "q, Ctrl-C"})
    expect_says(help, word);
  EXPECT_TRUE(line_of(help, 100).empty());
  type(controls, view(), "p");
  EXPECT_FALSE(line_of(plain_text(make_frame(view(), "s", {}, controls)), 100).empty());
  EXPECT_TRUE(controls.lines().empty()) << "the key that leaves does nothing else";
}

// Prevents: keys that nobody finds, and a footer that pushes a client out of a small terminal.
TEST_F(Top, TheLastLineHasTheKeys) {
  add_client(0, 0, "a");
  Controls controls;
  const auto last = [&](std::size_t rows) {
    return make_frame(view(), "s", {80, rows}, controls).back().text;
  };
  EXPECT_TRUE(last(24).starts_with("? help   up/down select   p policy"));
  EXPECT_EQ(make_frame(view(), "s", {80, 24}, controls).size(), 24U);
  EXPECT_TRUE(last(11).starts_with("  100 ")) << last(11);
  EXPECT_EQ(text().find("? help"), std::string::npos) << "in a pipe there are no keys";
  type(controls, view(), "p");
  EXPECT_TRUE(last(24).starts_with("Enter: change the policy   Esc: leave it"));
  type(controls, view(), "\x1b/");
  EXPECT_TRUE(last(24).starts_with("Enter: keep the filter   Esc: show all"));
  type(controls, view(), "\x1b?");
  EXPECT_TRUE(last(24).starts_with("any key: back"));
}

// Prevents: 16 empty rows of 24, while what is known of the clients is a key away.
TEST_F(Top, EmptyRowsSayMoreAboutTheClients) {
  add_client(0, 0, "train").gpu_ns.store(2000 * kMs);
  add_client(1, 1, "serve").gpu_ns.store(1000 * kMs);
  add_client(2, 1, "quiet");
  const auto picture = [&](std::size_t rows) {
    return plain_text(make_frame(view(), "s", {80, rows}));
  };
  expect_says(picture(24), "pid 101: serve\n  gpu ~1.0 s (an estimate from learned durations)\n");
  expect_says(picture(24), "pid 100: train\n  gpu ~2.0 s");
  EXPECT_EQ(picture(24).find("pid 102: quiet"), std::string::npos) << "there is nothing to say";
  expect_says(picture(13), "pid 101: serve\n  gpu");
  EXPECT_EQ(picture(13).find("pid 100: train"), std::string::npos) << "half of it";
  EXPECT_EQ(text().find("pid 101: serve"), std::string::npos) << "in a pipe";
  Controls controls;
  controls.press(kDown, view());
  const std::string selected = plain_text(make_frame(view(), "s", {80, 24}, controls));
  EXPECT_EQ(selected.find("pid 101: serve"), selected.rfind("pid 101: serve")) << "said twice";
}

TEST_F(Top, SaysWhatTheSessionHasGained) {
  shm::gain_words(*board_).store({.since_ns = kNow - 900'000 * kMs,
                                  .shared_ns = 900'000 * kMs,
                                  .busy_ns = 450'000 * kMs,
                                  .best_effort_ns = 225'000 * kMs,
                                  .idle_before_ns = 225'000 * kMs});
  expect_says(text(), ": GPU busy ~50 %, 50 % of it best effort:\n~4 min that were idle before\n");
}

TEST_F(Top, TotalsAreOfBestEffortAndOfCriticalClients) {
  expect_says(text(), "best effort held -, longest critical job -\n");
  for (int index = 0; index < 2; ++index) {
    add_client(index, 0, "a").attached_ns.store(kNow - 1000 * kMs);
    set_recent(index, 64);
  }
  slot(1).closed_ns.store(500 * kMs);
  add_client(2, 1, "b");
  add_client(3, 2, "c");
  set_recent(2, 5);
  set_recent(3, 2);
  const View seen = make_view(std::nullopt, at(kNow));
  expect_says(plain_text(make_frame(seen, "s", {})),
              "best effort held 25%, longest critical job 5.00ms\n");
}

TEST_F(Top, HistoryIsShownWhereThereIsRoom) {
  add_client(0, 0, "a");
  for (const std::uint64_t ms : {7U, 1U, 3U, 5U, 7U, 0U}) slot(0).job_times.add(ms * kMs);
  expect_says(line_of(text({120, 0}), 100), " 6 #.-+#_           a");
  expect_says(text({100, 0}), "HISTORY");
  EXPECT_EQ(text().find("HISTORY"), std::string::npos);
}

TEST_F(Top, SaysWhatIsWrongBelowTheClients) {
  shm::Slot& client = add_client(0, 0, "a");
  client.policy.store(shm::Policy{shm::PolicyKind::kEvent, shm::Spacing::launches(2)}.pack());
  expect_says(text(), "event:2*");
  expect_says(text(), "pid 100 * asked for policy device:200us, which its device cannot do");
  client.skipped_waits.store(1);
  expect_says(text(), "pid 100 skipped 1 wait of its policy: the GPU was not done after 5 s");
  board_->heartbeat_ns.store(kNow - 3000 * kMs);
  expect_says(text(), "new clients run ungated: controller pid 7 is dead or stopped");
  board_->controller_pid.store(0);
  expect_says(text(), "new clients run ungated: no controller");
}

// A picture larger than the terminal scrolls, and tears.
TEST_F(Top, NoPictureIsLargerThanTheTerminal) {
  fill_board();
  for (std::size_t columns = 20; columns <= 200; columns += 5) {
    for (std::size_t rows = 1; rows <= 80; rows += 3) {
      const Frame frame = make_frame(view(), std::string(32, 's'), {columns, rows});
      ASSERT_LE(frame.size(), rows);
      for (const Line& line : frame) ASSERT_EQ(columns_of(line.text), columns) << line.text;
    }
  }
  expect_says(text({80, 24}), "more");
}

// What matters most is there at 80 columns, however wide the numbers are.
TEST_F(Top, At80ColumnsEverythingOfAClientIsThere) {
  fill_board();
  const std::string picture = text();
  for (const char* title : {"PID", "PRI", "POLICY", "STATE", "BY", "HELD", "LNCH/S", "MAX"}) {
    expect_says(picture, title);
  }
  EXPECT_EQ(picture.find("JOBS/S"), std::string::npos);
  expect_says(text({120, 0}), "JOBS/S");
  add_client(0, 0, "python train.py");
  board_->used.store(1);
  const std::string usual = text();
  for (const char* title : {"P50", " N NAME", "train.py"}) expect_says(usual, title);
  set_name(slot(0), "most_critical");
  expect_says(text(), "most_critical");
}

TEST_F(Top, JsonHoldsTheRatesToo) {
  add_client(0, 0, "caf\xc3");
  add_client(1, 1, "b");
  set_recent(1, 3);
  const auto json = nlohmann::json::parse(top_json(view(), "s"));
  EXPECT_EQ(json["session"], "s");
  EXPECT_EQ(json["span_ns"], 500 * kMs);
  EXPECT_EQ(json["clients"][1]["recent_jobs"]["n"], 0);
  EXPECT_TRUE(json["clients"][1]["recent_jobs"]["p50_ns"].is_null());
  EXPECT_EQ(json["clients"][0]["recent_jobs"]["p50_ns"], 2 * kMs);
  EXPECT_EQ(json["clients"][0]["recent_jobs"]["max_ns"], 3 * kMs);
  EXPECT_EQ(json["clients"][0]["launches_per_s"], 0);
  EXPECT_EQ(json["clients"][0]["held_share"], 0);
  EXPECT_EQ(json["clients"][0]["policy"], "device:200us");
}

// A number that is wider than its column would push the others aside.
TEST(TopText, NumbersKeepToTheirWidth) {
  for (double value = 1; value < 1e14; value *= 1.037) {
    const auto ns = static_cast<std::uint64_t>(value);
    EXPECT_LE(short_duration(ns).size(), 6U) << short_duration(ns);
    EXPECT_LE(coarse_duration(ns).size(), 5U) << coarse_duration(ns);
    if (value >= 1e8) continue;
    EXPECT_LE(short_number(value).size(), 5U) << short_number(value);
  }
  EXPECT_EQ(short_duration(0), "0us");
  EXPECT_EQ(short_duration(999'400), "999us");
  EXPECT_EQ(short_duration(999'600), "1.00ms");
  EXPECT_EQ(short_duration(12'340'000), "12.3ms");
  EXPECT_EQ(short_duration(599'900'000'000), "600s");
  EXPECT_EQ(short_duration(900'000'000'000), "15.0m");
  EXPECT_EQ(coarse_duration(1'230'000), "1.2ms");
  EXPECT_EQ(short_number(0.5), "0.5");
  EXPECT_EQ(short_number(12'345), "12.3k");
}

TEST(TopText, BarsAreOfTheLastValues) {
  EXPECT_EQ(sparkline({}, 4), "");
  EXPECT_EQ(sparkline({0, 0}, 4), "__");
  EXPECT_EQ(sparkline({100, 7, 1, 3}, 3), "#.-");
}

TEST(TopText, OneIsNotPlural) {
  EXPECT_EQ(counted(0, "launch", "launches"), "0 launches");
  EXPECT_EQ(counted(1, "launch", "launches"), "1 launch");
}

TEST(TopText, WhatCannotBePrintedCannotBreakTheScreen) {
  EXPECT_EQ(fit("a\x1b[2Jb\n\xff", 10), "a?[2Jb??  ");
  EXPECT_EQ(fit("abcdef", 3), "abc");
  EXPECT_EQ(fit("ab", 4, true), "  ab");
  EXPECT_EQ(fit("", 0), "");
}

}  // namespace
}  // namespace sluice::tools
