// What `sluice top --json --follow` tells programs: every job of every client, once.
#include "tools/top/follow.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/board_test.hpp"
#include "tests/tools/command.hpp"

namespace sluice::tools {
namespace {

using nlohmann::json;
using test::kMs;
using test::kNow;
using Durations = std::vector<std::uint64_t>;

class Follow : public test::BoardTest {
 protected:
  json line(std::uint64_t now_ns = kNow) {
    const std::string text = follower_.line(*board_, shm::take_snapshot(*board_, now_ns));
    EXPECT_EQ(test::lines_in(text), 1) << text;
    return json::parse(text);
  }
  JobFollower follower_{"s"};
};

TEST_F(Follow, TellsOfEachJobOnce) {
  shm::Slot& client = add_client(3, 9, "serve.py");
  for (std::uint64_t ns : {1U, 2U}) client.job_times.add(ns);
  const json first = line();
  EXPECT_EQ(first["session"], "s");
  EXPECT_EQ(first["t_ns"], kNow);
  EXPECT_EQ(first["controller"]["pid"], 7);
  EXPECT_EQ(first["clients"][0]["job_ns"], json::array()) << "they ended before the first line";
  EXPECT_EQ(first["clients"][0]["jobs"], 2);
  client.job_times.add(30);
  client.job_times.add(40);
  const json second = line();
  EXPECT_EQ(second["clients"][0]["job_ns"], (Durations{30, 40}));
  EXPECT_EQ(second["clients"][0]["missed"], 0);
  EXPECT_EQ(second["clients"][0]["pid"], 103);
  EXPECT_EQ(second["clients"][0]["priority"], 9);
  EXPECT_EQ(second["clients"][0]["policy"], "device:200us");
  EXPECT_EQ(second["clients"][0]["state"], "idle");
  EXPECT_EQ(line()["clients"][0]["job_ns"], json::array());
}

// Prevents: a measurement of a server that is never idle, and so ends no job, that sees nothing.
TEST_F(Follow, TellsOfEachStepOnce) {
  shm::Slot& client = add_client(3, 9, "serve.py");
  client.steps.add(5, false);
  EXPECT_EQ(line()["clients"][0]["step_ns"], json::array()) << "it ended before the first line";
  client.steps.add(6, false);  // between jobs
  client.steps.add(7, true);
  const json second = line()["clients"][0];
  EXPECT_EQ(second["step_ns"], (Durations{6, 7}));
  EXPECT_EQ(second["steps"], 3);
  EXPECT_EQ(second["missed_steps"], 0);
  EXPECT_EQ(second["job_ns"], json::array());
  for (std::uint64_t ns = 1; ns <= 70; ++ns) client.steps.add(ns, true);
  client.info.store(shm::SlotInfo{shm::SlotState::kFree, 0, 0, 2}.pack());
  board_->used.store(0);
  const json last = line()["clients"][0];
  EXPECT_EQ(last["missed_steps"], 6);
  EXPECT_EQ(last["step_ns"].back(), 70);
}

TEST_F(Follow, SaysHowManyItMissed) {
  shm::Slot& client = add_client(0, 0, "a");
  line();
  for (std::uint64_t ns = 1; ns <= 100; ++ns) client.job_times.add(ns);
  const json client_of = line()["clients"][0];
  EXPECT_EQ(client_of["missed"], 36);
  ASSERT_EQ(client_of["job_ns"].size(), 64U);
  EXPECT_EQ(client_of["job_ns"][0], 37);
  EXPECT_EQ(client_of["job_ns"][63], 100);
}

// Prevents: a measurement that loses the first or the last jobs of a short program.
TEST_F(Follow, LosesNoJobOfAClientThatComesAndGoes) {
  line();
  shm::Slot& client = add_client(2, 1, "a");
  client.job_times.add(10);
  EXPECT_EQ(line()["clients"][0]["job_ns"], (Durations{10}));
  client.job_times.add(20);
  client.info.store(shm::SlotInfo{shm::SlotState::kFree, 0, 0, 2}.pack());
  board_->used.store(0);
  const json last = line()["clients"][0];
  EXPECT_EQ(last["state"], "gone");
  EXPECT_EQ(last["job_ns"], (Durations{20}));
  EXPECT_EQ(line()["clients"], json::array());
}

// Prevents: jobs of one process counted for the next in its slot, or those of another board.
TEST_F(Follow, AnotherClientOfTheSlotBeginsAnew) {
  shm::Slot& client = add_client(0, 0, "a");
  for (std::uint64_t ns = 1; ns <= 5; ++ns) client.job_times.add(ns);
  line();
  client.job_times.clear();
  client.job_times.add(7);
  client.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 2}.pack());
  EXPECT_EQ(line()["clients"][0]["job_ns"], (Durations{7}));
  board_->board_id.store(99);
  EXPECT_EQ(line()["clients"][0]["job_ns"], (Durations{7})) << "all of a new board is new";
}

TEST_F(Follow, ASessionThatComesLaterIsSeenFromItsBegin) {
  const json none = json::parse(follower_.line_without_board(5));
  EXPECT_EQ(none["t_ns"], 5);
  EXPECT_TRUE(none["controller"].is_null());
  EXPECT_EQ(none["clients"], json::array());
  add_client(0, 0, "a").job_times.add(8);
  EXPECT_EQ(line()["clients"][0]["job_ns"], (Durations{8}));
}

class FollowCommand : public test::CommandTest {
 protected:
  static std::vector<std::string> follow() {
    return test::sluice_command({"top", "--json", "--follow", "--interval", "0.02"});
  }
  /// The lines up to the first one for which `found` is true; null if none comes.
  template <class Found>
  static json next_line(test::Process& process, Found found) {
    for (std::string text = process.read_line(); !text.empty(); text = process.read_line()) {
      const json line = json::parse(text);
      if (found(line)) return line;
    }
    return {};
  }
};

TEST_F(FollowCommand, WaitsForTheSessionAndReportsItsJobs) {
  test::Process follower(follow());
  next_line(follower, [](const json& line) { return line["controller"].is_null(); });
  test::Process client(test::sluice_command({"exec", "--gpu", "sim", "--priority", "3", "--name",
                                             "my server", "--", SLUICE_TEST_CLIENT}));
  ASSERT_EQ(client.read_line(), "ok");
  std::size_t jobs = 0;
  for (int i = 0; i < 3; ++i) {
    for (const char* order : {"launch 1000000", "sync"}) {
      client.write_line(order);
      ASSERT_EQ(client.read_line(), "ok");
    }
  }
  const pid_t pid = client.pid();
  EXPECT_EQ(client.finish().exit_code, 0);
  const json last = next_line(follower, [&](const json& line) {
    for (const json& one : line["clients"]) {
      EXPECT_EQ(one["pid"], pid);
      EXPECT_EQ(one["name"], "my server");
      EXPECT_EQ(one["missed"], 0);
      jobs += one["job_ns"].size();
      if (one["state"] == "gone" || one["state"] == "leaving" || one["state"] == "dead")
        return true;
    }
    return false;
  });
  EXPECT_EQ(jobs, last["clients"][0]["jobs"]) << last;
  EXPECT_GE(jobs, 3U) << last;
  EXPECT_GE(last["clients"][0]["launches"], 3);
  kill(follower.pid(), SIGTERM);
  EXPECT_EQ(follower.finish().exit_code, 0);
}

// Prevents: a follower that lives on indefinitely behind a harness that was killed.
/// Prevents: the end of the follower that reads a board which its controller is just making.
TEST_F(FollowCommand, ABoardThatIsBeingMadeIsWaitedFor) {
  std::ofstream(board_file()).close();
  test::Process follower(follow());
  for (int line = 0; line < 3; ++line) {
    EXPECT_TRUE(json::parse(follower.read_line())["controller"].is_null());
  }
  std::filesystem::remove(board_file());
  kill(follower.pid(), SIGTERM);
  EXPECT_EQ(follower.finish().exit_code, 0);
}

TEST_F(FollowCommand, ABoardThatStaysUnreadableIsAnError) {
  std::ofstream(board_file()).close();
  test::Process follower(follow());
  while (!follower.read_line().empty()) {
  }
  std::filesystem::remove(board_file());
  const base::Captured result = follower.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find(board_file()), std::string::npos) << result.err;
}

TEST_F(FollowCommand, EndsWhenNobodyReadsOn) {
  const std::string command = std::string(SLUICE_TEST_PROGRAM) +
                              " top --json --follow --interval 3600 | head -n 1 > /dev/null; "
                              "echo ended";
  test::Process shell({"/bin/sh", "-c", command});
  EXPECT_EQ(shell.read_line(), "ended");
  EXPECT_EQ(shell.finish().exit_code, 0);
}

TEST_F(FollowCommand, IsForProgramsOnly) {
  const base::Captured result = test::sluice({"top", "--follow"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--json"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace sluice::tools
